"""Four ranks on one GPU, one of which does not enter an op: everything that is visible then."""

from __future__ import annotations

import re
import struct
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from gpu_kit import facts, power, ranks, status
from gpu_kit.checks.context import Context, phase
from gpu_kit.facts import Fact
from gpu_kit.findings import Finding, Outcome

NCCL2: Final = "nccl2"
WORLD: Final = 4
ABSENT: Final = 2
WAITERS: Final = {0: "item", 1: "synchronize", 3: "pageable"}
JOIN_S: Final = 60.0
IDLE_S: Final = 3.0
WATCHED_S: Final = 22.0
WATCHDOG_S: Final = 2.0
STATUS_BUDGET_US: Final = 100.0
"""The most that a status-only look may cost, four times a second."""
_WATCHDOG: Final = re.compile(r"pt_nccl_watch|nccl.*watch")


def run(context: Context) -> None:
    variables = {"TORCH_DIST_USE_NCCL2": "1"} if NCCL2 in context.arguments else {}
    with context.power():
        phase("idle")
        if not context.dry:
            time.sleep(IDLE_S)
        phase("starting")
        job = ranks.start(
            ["-m", "gpu_kit.programs.hang"], context.folder / "job", variables=variables
        )
        _observe(context, job)
        phase("over")
        for name, end in job.logs().items():
            facts.say("log", who=name, end=end)
        facts.say("statuses", of=job.statuses(), running=job.alive())
    # Here, because `judge` runs without frtop's modules.
    facts.say("power rule", says=power.rule_of(facts.read(facts.file())))


def _observe(context: Context, job: ranks.Ranks) -> None:
    file = facts.file()

    def count(kind: str) -> int:
        return len({fact["rank"] for fact in facts.of(facts.read(file), kind)})

    def over() -> bool:
        return not job.alive()

    if (
        not ranks.wait_for(
            lambda: count("entering") >= WORLD - 1 or over(), context.patient(JOIN_S)
        )
        or over()
    ):
        facts.say("not joined", joined=count("joined"))
        return
    time.sleep(1.0)
    phase("hang")
    _say_switches(job.pids)
    left = max(1.0, min(context.patient(WATCHED_S), context.left_s - 30.0))
    ranks.wait_for(lambda: count("watched") >= WORLD or over(), left)
    facts.say("alive", ranks=job.alive())
    phase("released")
    (job.folder / "release").touch()
    ranks.wait_for(lambda: count("after") >= WORLD or over(), context.patient(10.0))
    if not context.dry:
        ranks.wait_for(lambda: count("working") >= WORLD or over(), context.patient(10.0))
        phase("work")
        ranks.wait_for(lambda: count("worked") >= 1 or over(), context.patient(10.0))
        phase("ending")
    job.wait(max(1.0, min(context.patient(10.0), context.left_s - 3.0)))


def _say_switches(pids: Sequence[int]) -> None:
    """Notes how often per second each rank's watchdog thread was switched, seen from outside."""
    before = {pid: _switches(pid) for pid in pids}
    began = time.monotonic()
    time.sleep(WATCHDOG_S)
    passed = time.monotonic() - began
    for rank, pid in enumerate(pids):
        after = _switches(pid)
        rates = [
            round((count - before[pid][thread]) / passed, 1)
            for thread, count in after.items()
            if thread in before[pid]
        ]
        facts.say("switches", rank=rank, per_s=rates)


def _switches(pid: int) -> dict[str, int]:
    """Voluntary switches, by thread, of threads that have a watchdog's name."""
    found = {}
    for task in Path(f"/proc/{pid}/task").glob("*"):
        with suppress(OSError, ValueError):
            if _WATCHDOG.search((task / "comm").read_text()):
                for line in (task / "status").read_text().splitlines():
                    if line.startswith("voluntary_ctxt_switches:"):
                        found[task.name] = int(line.split()[1])
    return found


# -- pure from here on


def judge(found: list[Fact], arguments: Sequence[str] = ()) -> list[Finding]:
    """Turns facts into findings."""
    findings = [_four_ranks(found)]
    if facts.of(found, "entering"):
        findings += [
            _values(found), _cost(found), _get_error(found), _dump(found),
            *(_read(found, rank, how) for rank, how in WAITERS.items()),
            _released(found),
        ]  # fmt: skip
        if NCCL2 not in arguments:
            findings += [_watchdog(found), *_power(found)]
    if NCCL2 in arguments:
        return [
            Finding(f"nccl2 {one.point}", one.outcome, one.text, one.figures)
            for one in findings
            if one.point != "four ranks"
        ]
    return findings


def _four_ranks(found: list[Fact]) -> Finding:
    joined = facts.of(found, "joined")
    first = joined[0] if joined else {}
    figures = {key: first.get(key) for key in ("torch", "nccl", "backend", "ms_per_op")}
    if len(joined) < WORLD:
        end = next((fact["end"][-300:] for fact in facts.of(found, "log")), "no output")
        by_nccl: Outcome = "otherwise" if "nccl" in end.lower() else "failed"
        text = f"{len(joined)} of {WORLD} ranks joined: {end}"
        return Finding("four ranks", by_nccl, text, figures)
    wrong = [fact["rank"] for fact in joined if not fact["right"]]
    text = f"{first['ms_per_op']} ms an op of 4 MiB, backend {first['backend']} {first['nccl']}"
    if wrong:
        return Finding("four ranks", "otherwise", f"wrong sums on ranks {wrong}; {text}", figures)
    return Finding("four ranks", "expected", text, figures)


def _values(found: list[Fact]) -> Finding:
    before = {fact["rank"]: fact["status"] for fact in facts.of(found, "before")}
    during = {fact["rank"]: fact.get("status", ()) for fact in _looks(found, "status")}
    figures = {"before": before, "during": during}
    lacking = [rank for rank in range(WORLD) if not (before.get(rank) and during.get(rank))]
    if lacking:
        return Finding("status values", "failed", f"no status of ranks {lacking}", figures)
    mistakes = [
        text
        for rank in range(WORLD)
        if (text := status.mistake(rank, before[rank], during[rank], absent=rank == ABSENT))
    ]
    shown = ", ".join(f"rank {rank} {during[rank]}" for rank in range(WORLD))
    text = "; ".join(mistakes) or f"enqueued, started, completed: {shown}"
    return Finding("status values", "otherwise" if mistakes else "expected", text, figures)


def _cost(found: list[Fact]) -> Finding:
    times = {fact["rank"]: fact["times"] for fact in _looks(found, "status") if "times" in fact}
    if len(times) < WORLD:
        return Finding("status cost", "otherwise", _silent(found, "status"), {"times": times})
    median = max(one["median_us"] for one in times.values())
    worst = max(one["max_us"] for one in times.values())
    text = f"median at most {median} µs, longest {worst} µs, 4 x {times[0]['looks']} looks"
    good = median <= STATUS_BUDGET_US
    return Finding("status cost", "expected" if good else "otherwise", text, {"times": times})


def _get_error(found: list[Fact]) -> Finding:
    errors = {fact["rank"]: fact.get("error") for fact in _looks(found, "get_error")}
    lacking = [
        one for one in _looks(found, "get_error") if "no attribute" in one.get("failure", "")
    ]
    if len(lacking) == WORLD:
        return Finding("get_error", "not run", "this backend has none")
    if len([one for one in errors.values() if one]) < WORLD:
        return Finding("get_error", "otherwise", _silent(found, "get_error"), errors)
    return Finding("get_error", "expected", ", ".join(sorted({str(e) for e in errors.values()})))


def _dump(found: list[Fact]) -> Finding:
    dumps = {fact["rank"]: fact for fact in _looks(found, "dump") if "entries" in fact}
    if len(dumps) < WORLD:
        return Finding("dump in a hang", "otherwise", _silent(found, "dump"))
    last = {rank: fact["last"] for rank, fact in dumps.items()}
    longest = max(fact["look_ms"] for fact in dumps.values())
    unretired = {rank: fact["unretired"] for rank, fact in dumps.items()}
    text = f"at most {longest} ms, entries that are not retired per rank: {unretired}"
    figures = {"last": last, "unretired": unretired, "longest_ms": longest}
    right = all(unretired[rank] >= 1 for rank in WAITERS) and not unretired[ABSENT]
    return Finding("dump in a hang", "expected" if right else "otherwise", text, figures)


def _read(found: list[Fact], rank: int, how: str) -> Finding:
    point = f"read {how}"
    why = [fact["why"] for fact in facts.of(found, "no reader", rank=rank)]
    reads = [fact for fact in _looks(found, "read") if fact["rank"] == rank]
    if not reads:
        text = why[0] if why else "nothing to read from: no GPU" if not _asked(found, "read") else (
            _silent(found, "read"))  # fmt: skip
        return Finding(point, "failed" if why or _asked(found, "read") else "not run", text)
    read = reads[0]
    values = _floats(read.get("bytes", ""))
    text = f"{read.get('size')} bytes after {read.get('ms')} ms, first values {values[:2]}"
    if problem := read.get("error") or read.get("failure"):
        text = str(problem)
    return Finding(point, "expected" if read.get("ready") else "otherwise", text, dict(read))


def _released(found: list[Fact]) -> Finding:
    released = {fact["rank"]: fact["right"] for fact in facts.of(found, "released")}
    text = f"{len(released)} of {WORLD} ranks went on, right sums: {sum(released.values())}"
    good = len(released) == WORLD and all(released.values())
    after = {fact["rank"]: fact["status"] for fact in facts.of(found, "after")}
    return Finding("released", "expected" if good else "otherwise", text, {"after": after})


def _watchdog(found: list[Fact]) -> Finding:
    rates = {fact["rank"]: fact["per_s"] for fact in facts.of(found, "switches")}
    seen = [rate for one in rates.values() for rate in one]
    if not seen:
        return Finding("watchdog", "not run", "no thread has the name of NCCL's watchdog", rates)
    good = all(rate >= 5 for rate in seen)
    text = f"switches a second: {seen}"
    return Finding("watchdog", "expected" if good else "otherwise", text, rates)


def _power(found: list[Fact]) -> list[Finding]:
    medians = power.phases(found)
    if {"idle", "hang", "work"} <= set(medians):
        good, text = power.verdict(medians, power.rule_of(found))
        outcome: Outcome = "expected" if good else "otherwise"
        return [Finding("power", outcome, text, dict(medians))]
    why = [fact["why"] for fact in facts.of(found, "no power")]
    text = why[0] if why else f"samples only of: {', '.join(medians) or 'nothing'}"
    return [Finding("power", "not run", text, dict(medians))]


def _looks(found: list[Fact], name: str) -> list[Fact]:
    return facts.of(found, "look", look=name)


def _asked(found: list[Fact], name: str) -> bool:
    return bool(facts.of(found, "look began", look=name))


def _silent(found: list[Fact], name: str) -> str:
    """Returns which ranks did not return from a look, and which were never asked."""
    began = {fact["rank"] for fact in facts.of(found, "look began", look=name)}
    ended = {fact["rank"] for fact in _looks(found, name) if "failure" not in fact}
    failures = {fact["rank"]: fact["failure"] for fact in _looks(found, name) if "failure" in fact}
    text = f"no answer of ranks {sorted(began - ended)}, never asked {_never(began)}"
    return f"{text}; {failures}" if failures else text


def _never(began: set[Any]) -> list[int]:
    return [rank for rank in range(WORLD) if rank not in began]


def _floats(text: str) -> list[float]:
    data = bytes.fromhex(text)
    return list(struct.unpack(f"<{len(data) // 4}f", data[: len(data) // 4 * 4]))

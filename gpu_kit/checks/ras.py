"""`frtop ras` on a job with a rank that is behind, holds the GIL, is stopped, was killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from gpu_kit import facts, needs, ranks
from gpu_kit.checks.context import Context
from gpu_kit.facts import Fact
from gpu_kit.findings import Finding, Outcome

WORLD: Final = 4
ABSENT: Final = 2
KILLED: Final = 3
JOIN_S: Final = 45.0
ASK_S: Final = 30.0
APART_S: Final = 11.0
"""An agent asks at most every 10 s."""
DEAD_S: Final = 7.0
"""RAS calls a process unresponsive after 5 s."""
REFUSED: Final = "RAS is not asked"
PHASES: Final = ("behind", "gil", "stopped", "killed")


def run(context: Context) -> None:
    """Asks once per phase, the riskiest last."""
    folder = context.folder / "job"
    (context.folder / "f").mkdir(mode=0o700)
    os.environ["FRTOP_DIR"] = str(context.folder / "f")
    job = ranks.start(["-m", "gpu_kit.programs.ras"], folder, prepared=True)
    file = facts.file()

    def entered() -> bool:
        return len(facts.of(facts.read(file), "entering")) >= WORLD - 1 or job.broken()

    if not ranks.wait_for(entered, context.patient(JOIN_S)) or job.broken():
        facts.say("not joined", logs=job.logs(300))
        return
    time.sleep(2.0)
    last = 0.0
    for phase in PHASES[:1] if context.dry else PHASES:
        if context.left_s < ASK_S / 2 + APART_S:
            facts.say("no time", phase=phase)
            continue
        _prepare(job, phase)
        time.sleep(max(0.0, last + APART_S - time.monotonic()))
        last = _ask(context, job, phase)
        if phase == "stopped":
            os.kill(job.pids[ABSENT], signal.SIGCONT)
    facts.say("logs", logs=job.logs(400))
    job.kill()


def _prepare(job: ranks.Ranks, phase: str) -> None:
    if phase == "gil":
        time.sleep(APART_S - 3.0)  # so that the question falls into the 14 s
        (job.folder / "hold").touch()
        time.sleep(1.0)
    elif phase == "stopped":
        os.kill(job.pids[ABSENT], signal.SIGSTOP)
        time.sleep(DEAD_S)
    elif phase == "killed":
        with suppress(ProcessLookupError):
            os.kill(job.pids[KILLED], signal.SIGKILL)
        time.sleep(1.0)


def _ask(context: Context, job: ranks.Ranks, phase: str) -> float:
    """Asks once; returns when. Says the answer, and who lives afterwards."""
    at = time.monotonic()
    command = needs.frtop("ras", "--job", job.address, "--rank", "0", "--yes", "--json")
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False,
            timeout=max(5.0, min(ASK_S, context.left_s - 3.0)),
        )  # fmt: skip
        said = {"exit": done.returncode, "out": done.stdout, "error": done.stderr[-800:]}
    except subprocess.TimeoutExpired:
        said = {"exit": None, "out": "", "error": "no answer"}
    time.sleep(1.0)
    facts.say("ras", phase=phase, dry=context.dry, **said, alive=job.alive(),
              seconds=round(time.monotonic() - at - 1.0, 1))  # fmt: skip
    return at


# -- pure from here on


def judge(found: list[Fact], _arguments: Sequence[str] = ()) -> list[Finding]:
    """Makes findings of what was said."""
    for fact in facts.of(found, "not joined"):
        end = next(iter(fact["logs"].values()), "no output")
        return [Finding("ras behind", "failed", f"the job did not come up: {end}")]
    findings = [_phase(found, phase) for phase in PHASES]
    asked = facts.of(found, "ras")
    if any(one["exit"] == 0 for one in asked):
        findings.append(_harmless(asked))
    return findings


def _phase(found: list[Fact], phase: str) -> Finding:
    point, asked = f"ras {phase}", facts.of(found, "ras", phase=phase)
    if not asked:
        return Finding(point, "not run", "not asked: no time, or no NCCL")
    one = asked[0]
    answer = _parsed(one["out"])
    if answer is None:
        why = " ".join(str(one["error"]).split())[-300:]
        if REFUSED in why and one["dry"]:
            return Finding(point, "not run", f"refused, as it should be on gloo: {why}")
        return Finding(
            point, "otherwise", f"no answer, exit status {one['exit']}: {why}", dict(one)
        )
    text, good = _read(answer, phase)
    outcome: Outcome = "expected" if good else "otherwise"
    return Finding(point, outcome, f"{text}; {one['seconds']} s", {"answer": answer})


def _read(answer: dict[str, Any], phase: str) -> tuple[str, bool]:
    """Returns what the answer says of the rank that the phase is about, and if that is right."""
    communicators = answer.get("communicators") or []
    if not communicators:
        return f"an answer without communicators: {answer.get('help')}", False
    if phase in ("behind", "gil"):
        counts = [one["counts"].get("AllReduce", {}) for one in communicators]
        fewer = sorted({rank for one in counts for rank in one.get("fewer", {})})
        text = f"fewer AllReduces: ranks {', '.join(fewer) or 'none'} ({json.dumps(counts)[:150]})"
        return text, fewer == [str(ABSENT)]
    away = sorted({rank for one in communicators for rank in one["missing"]})
    whom = ABSENT if phase == "stopped" else KILLED
    return f"missing: ranks {away}", whom in away


def _parsed(text: str) -> dict[str, Any] | None:
    try:
        answer = json.loads(text)
    except ValueError:
        return None
    return answer if isinstance(answer, dict) else None


def _harmless(asked: list[Fact]) -> Finding:
    lost = {}
    for one in asked:
        gone = {KILLED} if one["phase"] == "killed" else set()
        missing = set(range(WORLD)) - set(one["alive"]) - gone
        if missing:
            lost[one["phase"]] = sorted(missing)
    # Once a member is gone NCCL may end the others by itself.
    lost.pop("killed", None)
    text = f"ended: {lost}" if lost else f"all live after {len(asked)} questions"
    return Finding("ras harmless", "otherwise" if lost else "expected", text)

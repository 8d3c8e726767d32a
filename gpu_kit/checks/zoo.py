"""Programs of the zoo on NCCL, prepared and not, and what `frtop diagnose --json` says of each.

The programs and truths are those of `make zoo`. On NCCL, a host runs ahead of its device. So each
step of a program ends with a synchronization, like a training step that prints its loss.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from gpu_kit import facts, needs, ranks
from gpu_kit.checks.context import Context
from gpu_kit.facts import Fact
from gpu_kit.findings import Finding, Outcome
from gpu_kit.points import FIRST_FAULTS, FRONT, WAYS, fault_point

AT_ONCE: Final = 2
"""Programs that run at a time, each both ways: 16 ranks on one GPU."""
START_S: Final = 45.0
VERDICT_S: Final = 25.0
"""Seconds after the fault, or after the start of a healthy program."""
CONTROL_S: Final = 8.0
ASK_S: Final = 8.0
_TESTS: Final = Path(__file__).resolve().parents[2] / "tests"
_OUTCOMES: Final[dict[str, Outcome]] = {
    "right": "expected",
    "less exact": "figure",
    "undecided": "figure",
    "wrong": "otherwise",
}


def run(context: Context) -> None:
    """Runs the programs in their order, some at a time."""
    runs = [
        (name, way) for name in context.arguments for way in WAYS
        if way == "prepared" or not name.startswith("dead/")
    ]  # fmt: skip
    with ThreadPoolExecutor(1 if context.dry else AT_ONCE * len(WAYS)) as pool:
        for done in [pool.submit(_one, context, name, way) for name, way in runs]:
            done.result()


def _one(context: Context, name: str, way: str) -> None:
    from zoo.runner import case_of  # noqa: PLC0415 - only this process has frtop's needs

    began = time.monotonic()
    if context.left_s < VERDICT_S:
        facts.say("zoo", name=name, way=way, reached="", reason="no time was left")
        return
    case = case_of(name)
    folder = context.folder / f"{way}-{name.replace('/', '-')}"
    variables = {
        **case.environment,
        "ZOO_BACKEND": os.environ[ranks.BACKEND],
        "ZOO_FOLDER": str(folder),
        "ZOO_MODE": "sync",
        "FRTOP_DIR": str(folder / "f"),
        "FRTOP_UNPREPARED": "0",
    }
    (folder / "f").mkdir(mode=0o700, parents=True)
    job = ranks.start(
        [str(_TESTS / "jobs" / f"{name}.py")], folder, world=case.ranks,
        prepared=way == "prepared", variables=variables, with_pipe=True,
    )  # fmt: skip
    try:
        found = _watched(context, job, case, folder, way)
    except Exception as error:  # noqa: BLE001 - one program must not end the others
        found = {"reached": "", "reason": f"{type(error).__name__}: {error}"[:300]}
    facts.say("zoo", name=name, way=way, **found, statuses=job.statuses(),
              seconds=round(time.monotonic() - began, 1))  # fmt: skip
    job.kill()


def _watched(
    context: Context, job: ranks.Ranks, case: Any, folder: Path, way: str
) -> dict[str, Any]:
    """Runs `frtop diagnose` again and again until it is right, or time is up.

    Each job has a folder, and so an agent, of its own. frtop comes after the fault, as people do.
    """
    limit = min(context.patient(START_S), context.left_s - 10.0)
    mark = folder / "fault"
    if case.healthy:
        ranks.wait_for(job.broken, min(context.patient(CONTROL_S), limit))
    elif not ranks.wait_for(lambda: mark.exists() or job.broken(), limit) or not mark.exists():
        return {"reached": "", "reason": "it did not come to its fault", "logs": job.logs(300)}
    origin = time.monotonic()
    found: dict[str, Any] = {"reached": "", "reason": "frtop diagnose gave no JSON"}
    wrong = ""
    end = min(origin + context.patient(VERDICT_S), context.until - 6.0)
    while (left := end - time.monotonic()) > 1.0:
        document, error = _diagnosis(folder, job.address, way, min(ASK_S, left))
        if document is None:
            if not found["reached"]:
                found["reason"] = f"frtop diagnose: {error}"
            time.sleep(0.5)
            continue
        found = _outcome(case, document)
        found["after_s"] = round(time.monotonic() - origin, 1)
        if found["reached"] == "wrong":
            wrong = wrong or found["reason"]
        if found["reached"] == "right":
            break
        time.sleep(0.5)
    if wrong:
        found |= {"reached": "wrong", "reason": wrong}
    return found | {"fronts": _fronts(folder / "f")}


def _fronts(folder: Path) -> list[list[Any]]:
    """The number of each prepared rank on NCCL, and the counts of its default group's device."""
    from frtop_probe.ring.layout import StatusCell  # noqa: PLC0415 - as above
    from frtop_probe.ring.reader import Ring  # noqa: PLC0415

    found = []
    for path in sorted(folder.glob("*.ring")):
        ring = Ring(path)
        row = next((row for row in ring.group_rows() if row.group == 1), None)
        group = ring.groups.get(1, {})
        blind = group.get("blind", "")
        if row is not None and "nccl" in str(group.get("backend")):
            counts = [row.number, row.enqueued, row.completed, row.watched]
            found.append([ring.cell(StatusCell.RANK), *counts, blind])
    return found


def _diagnosis(
    folder: Path, address: str, way: str, seconds: float
) -> tuple[dict[str, Any] | None, str]:
    environment = {
        **os.environ,
        "FRTOP_DIR": str(folder / "f"),
        "FRTOP_UNPREPARED": "0" if way == "prepared" else "1",
    }
    longest = f"{max(1.0, seconds):.1f}"
    command = needs.frtop("diagnose", "--json", "--job", address, "--wait", longest)
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True,
                              timeout=seconds + 10, check=False)  # fmt: skip
    except subprocess.TimeoutExpired:
        return None, "no answer"
    try:
        return dict(json.loads(done.stdout)), ""
    except ValueError:
        return None, done.stderr.strip()[-300:]


def _outcome(case: Any, document: dict[str, Any]) -> dict[str, Any]:
    """Compares the document with the truth, by the rules of the zoo."""
    from gpu_kit.diagnosis import outcome  # noqa: PLC0415 - it needs msgspec

    return outcome(case, document)


# -- pure from here on


def judge(found: list[Fact], arguments: Sequence[str] = ()) -> list[Finding]:
    """Turns facts about the programs in `arguments` into findings."""
    findings = []
    for fact in facts.of(found, "zoo"):
        if fact["name"] not in arguments:
            continue
        if (fact["name"], fact["way"]) == (FIRST_FAULTS[0], "prepared"):
            findings.append(_front_finding(fact.get("fronts") or []))
        point, reached = fault_point(fact["name"], fact["way"]), fact["reached"]
        if not reached:
            outcome: Outcome = "not run" if "no time" in fact["reason"] else "failed"
            findings.append(Finding(point, outcome, str(fact["reason"]), dict(fact)))
            continue
        text = f"{reached} after {fact.get('after_s')} s: {fact.get('said') or 'no verdict'}"
        if fact["reason"]:
            text += f" ({fact['reason']})"
        findings.append(Finding(point, _OUTCOMES[reached], text, dict(fact)))
    return findings


def _front_finding(fronts: Sequence[Sequence[Any]]) -> Finding:
    """Whether the recorder saw that devices wait in an op that hosts have handed over."""
    text = "; ".join(
        f"rank {rank}: #{number} issued, #{enqueued} handed over, #{completed} done"
        + ("" if watched else f", not seen {blind}".rstrip())
        for rank, number, enqueued, completed, watched, blind in fronts
    )
    values = {"fronts": [list(one) for one in fronts]}
    if not fronts:
        return Finding(FRONT, "not run", "no rank had a ring with a group on NCCL", values)
    waits = [one for one in fronts if one[4] and one[1] == one[2] == one[3] + 1]
    rests = [one for one in fronts if one[4] and one[1] == one[2] == one[3]]
    right = len(waits) + len(rests) == len(fronts) and waits
    return Finding(FRONT, "expected" if right else "otherwise", text, values)

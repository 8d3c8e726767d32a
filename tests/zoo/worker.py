"""Runs one program for each line on stdin, and writes a `Run` as one line to stdout.

With `--unprepared` the programs run without the recorder.

It is a process of its own because a `Zoo` sets the environment. It ends with its parent.
"""

from __future__ import annotations

import ctypes
import json
import shutil
import signal
import sys
import time
from dataclasses import asdict, dataclass

from zoo.dumps import said_of_dumps
from zoo.ground_truth import Mode
from zoo.observer import Outcome
from zoo.runner import Zoo, case_of, missing
from zoo.wording import verdict_text

_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class Run:
    """The result of one program in one mode, with all columns of the table."""

    name: str
    mode: Mode
    failure: str = ""
    skipped: str = ""
    verdict: str = ""
    health: str = ""
    who_s: float | None = None
    confirmed_s: float | None = None
    seconds: float = 0.0
    dumps: str = ""
    log: str = ""
    reached: str = ""  # without the recorder: one of `outcomes.OUTCOMES`
    reason: str = ""
    details: str = ""


def run(zoo: Zoo, name: str, mode: Mode, *, dumps: bool, prepared: bool = True) -> Run:
    """Runs one program; with `dumps`, also lets frtop read its Flight Recorder dumps."""
    case, began = case_of(name), time.monotonic()
    if lacks := missing(case, prepared=prepared):
        return Run(name, mode, skipped=f"needs {lacks}")
    outcome: Outcome = zoo.run(name, mode, dumps=dumps and not case.healthy)
    said = ""
    if outcome.dumps is not None:
        said = said_of_dumps(outcome.dumps, case)
        shutil.rmtree(outcome.dumps.parent, ignore_errors=True)
    return Run(
        name,
        mode,
        failure=outcome.failure,
        verdict=verdict_text(outcome.verdicts),
        health=outcome.health,
        who_s=outcome.who_s,
        confirmed_s=outcome.confirmed_s,
        seconds=time.monotonic() - began,
        log=outcome.log[-2000:] if outcome.failure else "",
        reached=outcome.reached,
        reason=outcome.reason,
        details=outcome.details,
        dumps=said,
    )


def main() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    prepared = "--unprepared" not in sys.argv[1:]
    with Zoo(prepared=prepared) as zoo:
        for line in sys.stdin:
            request = json.loads(line)
            done = run(zoo, **request, prepared=prepared)
            print(json.dumps(asdict(done)), flush=True)


if __name__ == "__main__":
    main()

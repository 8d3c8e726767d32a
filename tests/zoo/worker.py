"""Runs programs, one a line on stdin, and answers each with one line on stdout: a `Run`.

A process of its own because a `Zoo` sets the environment; ends with its parent.
"""

from __future__ import annotations

import ctypes
import json
import shutil
import signal
import sys
import time
from dataclasses import asdict, dataclass

from zoo.dumps import told_of
from zoo.ground_truth import Mode
from zoo.runner import Outcome, Zoo, case_of, lacking
from zoo.wording import verdict_text

_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class Run:
    """One program in one mode: what was said of it, and what the table needs besides."""

    name: str
    mode: Mode
    amiss: str = ""
    skipped: str = ""
    said: str = ""
    health: str = ""
    who_s: float | None = None
    confirmed_s: float | None = None
    seconds: float = 0.0
    torchfrtrace: str = ""
    mended: str = ""
    frtop: str = ""
    log: str = ""


def run(zoo: Zoo, name: str, mode: Mode, *, dumps: bool) -> Run:
    """Runs one program; with `dumps` it is asked what these tell, too."""
    case, began = case_of(name), time.monotonic()
    if lacks := lacking(case):
        return Run(name, mode, skipped=f"needs {lacks}")
    outcome: Outcome = zoo.run(name, mode, dumps=dumps and not case.healthy)
    told: dict[str, str] = {}
    if outcome.dumps is not None:
        told = asdict(told_of(outcome.dumps, case))
        shutil.rmtree(outcome.dumps.parent, ignore_errors=True)
    return Run(
        name,
        mode,
        amiss=outcome.amiss,
        said=verdict_text(outcome.verdicts),
        health=outcome.health,
        who_s=outcome.who_s,
        confirmed_s=outcome.confirmed_s,
        seconds=time.monotonic() - began,
        log=outcome.log[-2000:] if outcome.amiss else "",
        **told,
    )


def main() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with Zoo() as zoo:
        for line in sys.stdin:
            asked = json.loads(line)
            done = run(zoo, asked["name"], asked["mode"], dumps=asked["dumps"])
            print(json.dumps(asdict(done)), flush=True)


if __name__ == "__main__":
    main()

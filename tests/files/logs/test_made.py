"""Logs of faults that were made on purpose: the rank is known, and no other may be named.

`made.tar.xz` has all that torch 2.13 on gloo, torchrun, srun, mpirun and a shell wrote: no line is
left out, only names of the machine are replaced. `making/faults.py` lists the faults, `make logs`
makes such logs. `pytest -s` prints the figures.
"""

from __future__ import annotations

from collections import Counter
from fnmatch import fnmatch
from pathlib import Path
from typing import Final

import pytest

from files.logs.judging import frame_of, judged, unpack

LOGS: Final = Path(__file__).with_name("made.tar.xz")
RIGHT: Final = 71
"""How many verdicts named exactly the rank of the fault when this was last raised."""
_LATE: Final = "the late rank wrote nothing of it, and those that gave up are victims"
_ABORTED: Final = "gloo aborts ranks that did nothing wrong, too"
_LEFT: Final = "no line says that the rank has left"
UNDECIDED: Final = {
    "*-shell": "a shell does not say how which of its processes ended",
    "*-spawn": "spawn reports one process, which may be a victim",
    "abort-*": _ABORTED,
    "unused-parameter-*": _ABORTED,
    "skipped-collective-*": _ABORTED,
    "other-shape-?-*": _ABORTED,
    "other-dtype-?-*": _ABORTED,
    "other-op-?-*": "all ranks time out",
    "exit-with-text-*": "exit status 1 without an exception may follow from a closed connection",
    "exit-0-*": _LEFT,
    "fewer-batches-*": _LEFT,
    "second-host-dies-*": "the output of that host just ends",
    "SIGSTOP-*": _LATE,
    "hang-*": _LATE,
    "no-new_group-*": _LATE,
    "time-limit-*": _LATE,
    "barrier*-0-of-*": "rank 0 says who is missing, and did not",
}
"""Logs that do not tell the rank, by patterns of their names, and why they do not."""


def test_nobody_else_is_blamed_for_a_fault_that_was_made(tmp_path: Path) -> None:
    found: dict[str, list[str]] = {"right": [], "undecided": [], "wrong": []}
    ways = Counter[str]()
    for made in unpack(LOGS, tmp_path):
        found[judged(made, frame_of(tmp_path / made.name))].append(made.name)
        ways[made.way] += 1
    print({verdict: len(names) for verdict, names in found.items()}, dict(ways))
    assert found["wrong"] == []
    assert [
        name for name in found["undecided"] if not any(fnmatch(name, one) for one in UNDECIDED)
    ] == []
    assert len(found["right"]) >= RIGHT


@pytest.mark.parametrize("half", ["first", "last"])
def test_nor_is_anybody_by_half_of_a_log(tmp_path: Path, half: str) -> None:
    wrong = []
    for made in unpack(LOGS, tmp_path):
        if made.fault == "restart" and half == "first":
            continue  # it has the attempt before, which another rank ended
        for log in [*(tmp_path / made.name).rglob("*.out"), *(tmp_path / made.name).rglob("*.log")]:
            lines = log.read_bytes().splitlines(keepends=True)
            middle = len(lines) // 2
            log.write_bytes(b"".join(lines[:middle] if half == "first" else lines[middle:]))
        wrong += [made.name] if judged(made, frame_of(tmp_path / made.name)) == "wrong" else []
    assert wrong == []

"""Logs of faults that were made on purpose: the rank is known, and no other may be named.

`made.txt` has the deciding lines of torch 2.13 on gloo under `torchrun --tee 3`; paths and hosts
are replaced. Every fault was made in the last rank. `pytest -s` prints the figures.
"""

from __future__ import annotations

import re
from pathlib import Path

from frtop_tui.files.loader import open_paths

LOGS = Path(__file__).with_name("made.txt")
RIGHT = 9
"""How many verdicts named exactly the rank of the fault when this was last raised."""


def test_nobody_else_is_blamed_for_a_fault_that_was_made(tmp_path: Path) -> None:
    judged: dict[str, set[int]] = {}
    wrong: list[str] = []
    right = 0
    for part in LOGS.read_text().split("== ")[1:]:
        name, _, lines = part.partition("\n")
        log = tmp_path / "job.out"
        log.write_text(lines)
        found = re.fullmatch(r"\w+ of rank (\d) of \d", name)
        assert found, name
        named = {rank for one in open_paths([log]).verdicts for rank in one.culprits}
        judged[name] = named
        if named - {int(found[1])}:
            wrong.append(name)
        right += bool(named) and name not in wrong
    print(f"{right} right, {len(judged) - right - len(wrong)} undecided, {len(wrong)} wrong")
    assert not wrong, {name: judged[name] for name in wrong}
    assert right >= RIGHT, judged

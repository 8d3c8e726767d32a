"""Who did not join a group on gloo, by the key of the store for which the others waited."""

from __future__ import annotations

from pathlib import Path

import pytest

from files.frames import notes
from files.logs.eras import table
from frtop_tui.files.loader import open_paths

FAILED = "E1129 10:11:12.5 7 api.py:2] failed (exitcode: 1) local_rank: 1 (pid: 42) of binary: x"
MPIRUN = ["  Process name: [[34079,1],0]", "  Exit code:    1"]


def waited(before: str, key: str) -> list[str]:
    return [
        f"{before}Traceback (most recent call last):",
        f'{before}  File "/home/me/train.py", line 8, in main',
        f"{before}torch.distributed.DistStoreError: wait timeout after 20000ms, keys: {key}",
    ]


@pytest.mark.parametrize(
    ("lines", "blamed"),
    [
        (waited("[rank0]: ", "/default_pg/0//cpu//0/1"), {1}),
        ([*waited("[1,0]<stderr>:", "/default_pg/0//cpu//0/2"),
          *waited("[1,1]<stderr>:", "/default_pg/0//cpu//0/2"), *MPIRUN], {2}),
        ([FAILED, *waited("[rank1]: ", "/default_pg/0//cpu//0/0"),
          *table((1, 1, "10:11:12"))], {0}),
        # Rank 0 has the store: it may wait for another rank before it puts its own address there.
        (waited("[rank1]: ", "/default_pg/0//cpu//0/0"), set()),
        (waited("[rank0]: ", "/3//cpu//0/1"), set()),  # ranks of another group
        (waited("[rank0]: ", "/default_pg/0//cuda//0"), set()),
    ],
)  # fmt: skip
def test_the_rank_whose_address_is_missing_has_not_joined(
    tmp_path: Path, lines: list[str], blamed: set[int]
) -> None:
    log = tmp_path / "job.out"
    log.write_text("\n".join(lines) + "\n")
    frame = open_paths([log])
    assert {rank for one in frame.verdicts for rank in one.culprits} == blamed
    assert ("names only the first missing rank" in notes(frame)) == bool(blamed)
    if blamed:
        assert "has not entered init_process_group" in frame.verdicts[0].headline

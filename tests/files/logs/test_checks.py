"""What torch itself finds on gloo: who did not join, did not come, or called something else."""

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


def test_a_monitored_barrier_is_believed_without_the_exception(tmp_path: Path) -> None:
    """`torch.multiprocessing.spawn` prints that of one process only, and not as its rank's."""
    log = tmp_path / "job.out"
    log.write_text(
        "[rank1]:[E1129 16:59:48.191376588 ProcessGroupGloo.cpp:67] Rank 1 successfully reached"
        " monitoredBarrier, but received errors while waiting for send/recv from rank 0.\n"
        "[rank0]:[E1129 16:59:48.202107396 ProcessGroupGloo.cpp:67] [Rank 0]: Ranks 2 failed to"
        " pass monitoredBarrier in 5000 ms\n"
    )
    (verdict,) = open_paths([log]).verdicts
    assert verdict.culprits == (2,)
    assert "has not entered monitored_barrier" in verdict.headline


def called(rank: int, shape: str, other: int) -> str:
    """The other rank's call is misread where shapes differ in length."""
    return (
        f"[rank{rank}]: RuntimeError: Detected mismatch between collectives on ranks. Rank {rank}"
        " is running collective: CollectiveFingerPrint(SequenceNumber=29, OpType=ALLREDUCE,"
        f" TensorShape=[{shape}], TensorDtypes=Float, TensorDeviceTypes=TensorOptions(dtype=float"
        f" (default), device=cpu)), but Rank {other} is running collective: CollectiveFingerPrint("
        "SequenceNumber=0OpType=GATHER).Collectives differ in the following aspects: x"
    )


@pytest.mark.parametrize(
    ("calls", "blamed"),
    [
        ([called(1, "1000", 0), called(0, "", 1), called(2, "", 1)], {1}),
        ([called(0, "", 1), called(2, "", 1)], set()),  # what rank 1 called is not known
        ([called(1, "1000", 0), called(0, "", 1)], set()),  # two may both be wrong
        ([called(1, "1000", 0)], set()),
    ],
)
def test_each_rank_knows_its_own_call_in_a_mismatch(
    tmp_path: Path, calls: list[str], blamed: set[int]
) -> None:
    log = tmp_path / "job.out"
    log.write_text("\n".join(calls) + "\n")
    frame = open_paths([log])
    assert {rank for one in frame.verdicts for rank in one.culprits} == blamed

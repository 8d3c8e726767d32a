"""Lines that become notes, and what is said of them: of NCCL, drivers and servers."""

from __future__ import annotations

from pathlib import Path

import pytest

from files.frames import notes
from files.logs.eras import after, joined
from frtop_tui.diagnosis.model import Frame
from frtop_tui.files.loader import open_paths

PY_SPY = ["Process 17: python train.py", "Python v3.11.4 (/usr/bin/python3.11)", "",
          'Thread 17 (idle): "MainThread"', "    load (train.py:7)"]  # fmt: skip
WORLD = "x (world_size=2, num_workers_joined=1, timeout=0:30:00)"


def judged(folder: Path, *lines: str) -> Frame:
    (folder / "job.out").write_text(joined(lines))
    return open_paths([folder / "job.out"])


@pytest.mark.parametrize(
    ("line", "means"),
    [
        ("kernel: NVRM: Xid (PCI:0000:3b:00): 79, pid=42, GPU has fallen off the bus.", "hardware"),
        ("NVRM: Xid (PCI:0000:3b:00): 31, pid=42, name=python, Ch 00000008", "the program's own"),
        ("NVRM: Xid (PCI:0000:3b:00): 45, pid=42, Ch 00000008", "follows from another error"),
        ("NVRM: Xid (PCI:0000:3b:00): 119, pid=42, Timeout waiting for RPC", "firmware"),
        ("NVRM: Xid (PCI:0000:3b:00): 7, x", ""),
        ("ERROR 11-29 10:11:12 [core.py:1] Worker proc VllmWorker-3 died unexpectedly, ...", ""),
        ("ERROR 11-29 10:11:12 [core.py:1] EngineCore encountered a fatal error.", ""),
        ("TimeoutError: RPC call to execute_model timed out.", "some worker did not answer"),
        ("[2026-11-29 10:11:12 TP1] Scheduler watchdog timeout (self.watchdog_timeout=300, ...)",
         "hangs or waits"),
        ("[2026-11-29 10:11:12] Received sigquit from a child process. It ...", "which one"),
        ("E1129 10:11:12.1 42 api.py:900] failed (exitcode: -9) local_rank: 3 (pid: 17) of x",
         ""),
    ],
)  # fmt: skip
def test_lines_that_are_quoted(tmp_path: Path, line: str, means: str) -> None:
    frame = judged(tmp_path, line, "No available shared memory broadcast block found in 60 s.")
    assert frame.verdicts == ()
    assert "job.out:1: " in notes(frame)
    assert means in notes(frame)
    assert "broadcast block" not in notes(frame)


def nccl(host: str, pid: int, text: str) -> str:
    return f"{host}:{pid}:{pid + 9} [0] {text}"


def ready(host: str, pid: int, rank: int, size: int = 2) -> str:
    said = f"comm 0x1f rank {rank} nranks {size} cudaDev 0 busId 9a000 commId 0x2b"
    return nccl(host, pid, f"NCCL INFO ncclCommInitRank {said} - Init COMPLETE")


@pytest.mark.parametrize(
    ("lines", "rank"),
    [
        ([WORLD, ready("a", 16, 0), ready("a", 17, 1)], 1),
        ([WORLD, ready("a", 16, 0), ready("a", 17, 1), ready("b", 17, 0)], None),  # another group
        ([WORLD, ready("a", 16, 1), ready("a", 17, 0), ready("a", 16, 0)], None),
        ([WORLD, ready("a", 17, 1)], None),
        ([WORLD, ready("a", 16, 0, 4), ready("a", 17, 1, 4)], None),  # not the size of the job
        ([ready("a", 16, 0), ready("a", 17, 1)], None),  # its size is not known
    ],
)
def test_nccl_says_which_process_is_a_rank(
    tmp_path: Path, lines: list[str], rank: int | None
) -> None:
    frame = judged(tmp_path, *lines, *PY_SPY)
    assert [one for one in frame.ranks if frame.ranks[one].threads] == (
        [rank] if rank is not None else []
    )
    assert ("stack of an unknown rank: job.out" in notes(frame)) == (rank is None)


LOST = "misc/socket.cc:50 NCCL WARN socketProgress: Connection closed by remote peer 10.0.0.3<4123>"
STATUS = "net.cc:9 NCCL WARN NET/IB: Got completion from peer 10.0.0.3<77> with status=12 opcode=0"
USING = "NCCL INFO Bootstrap : Using eth0:10.0.0.3<0>"


def test_an_address_that_several_processes_lost_is_named_with_its_host(tmp_path: Path) -> None:
    lost = [nccl("a", 16, LOST), nccl("a", 17, STATUS)]
    frame = judged(tmp_path, *lost)
    assert "2 processes lost the connection to 10.0.0.3: its process may have" in notes(frame)
    frame = judged(tmp_path, nccl("node7", 9, USING), *lost)
    assert "2 processes lost the connection to 10.0.0.3 (host node7)" in notes(frame)
    frame = judged(tmp_path, nccl("node7", 9, USING), nccl("node8", 9, USING), *lost)
    assert "lost the connection to 10.0.0.3:" in notes(frame)  # whose address is it?
    assert frame.verdicts == ()
    frame = judged(tmp_path, lost[0], lost[0], *after("[1,2]<stderr>:", ["x"]))
    assert "lost the connection" not in notes(frame)

"""Stacks in logs: what py-spy and faulthandler really print, and whose they are."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import IO

import pytest

from files.frames import notes
from files.logs.eras import TORCH_2_7, after, joined, one_late, raised, table
from frtop_tui.diagnosis.model import Frame
from frtop_tui.files.loader import open_paths
from frtop_tui.files.logs.prefixes import wall_ns_of
from frtop_tui.files.logs.stack_text import FaultText, PySpyText
from frtop_tui.text.lines import join, text_of
from frtop_tui.text.stacks import thread_parts

SPY = Path(sys.executable).with_name("py-spy")
TIMEOUT_S = 60
PROGRAM = """
import faulthandler, os, sys, threading, time
faulthandler.enable()
def inner(size):
    if "dump" in sys.argv:
        faulthandler.dump_traceback_later(0.05)
        time.sleep(0.5)
    if "crash" in sys.argv:
        faulthandler._sigsegv()
    if "abort" in sys.argv:
        os.abort()
    print("ready", flush=True)
    time.sleep(100)
class Loader:
    def load(self):
        inner(3)
threading.Thread(target=time.sleep, args=(100,), name="helper", daemon=True).start()
Loader().load()
"""
C10D = "/opt/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
LOADER = "/opt/lib/python3.11/site-packages/torch/utils/data/dataloader.py"


def fault(*frames: str, head: str = "Fatal Python error: Aborted") -> list[str]:
    """What faulthandler writes; frames as `file:line function`, the innermost first."""
    lines = [head, "", "Thread 0x00007fdb92c9c6c0 (most recent call first):",
             '  File "/usr/lib/python3.11/threading.py", line 1002 in _bootstrap', "",
             "Thread 0x00007fdb93fddb80 (most recent call first):"]  # fmt: skip
    for frame in frames:
        place, _, function = frame.rpartition(" ")
        file, _, line = place.rpartition(":")
        lines.append(f'  File "{file}", line {line} in {function}')
    return [*lines, "", "Extension modules: torch._C (total: 1)"]


WAITS = fault(f"{C10D}:3862 all_gather_into_tensor", "/home/me/train.py:120 step",
              "/home/me/train.py:150 <module>")  # fmt: skip
LOADS = fault(f"{LOADER}:1275 _try_get_data", f"{LOADER}:733 __next__",
              "/home/me/train.py:118 step", "/home/me/train.py:150 <module>")  # fmt: skip
HELPER = fault("/opt/torch/utils/data/_utils/worker.py:311 _worker_loop", "/a.py:1 <module>",
               head="Fatal Python error: Bus error")  # fmt: skip


def spy(pid: int, command: str = "python train.py", at: str = "train.py:118") -> list[str]:
    """What py-spy writes of a process that loads data."""
    return [f"Process {pid}: {command}", "Python v3.11.4 (/usr/bin/python3.11)", "",
            f'Thread {pid} (idle): "MainThread"',
            "    _try_get_data (torch/utils/data/dataloader.py:1275)",
            "    __next__ (torch/utils/data/dataloader.py:733)", f"    step ({at})",
            "    <module> (train.py:150)", f"Thread {pid + 1} (active): \"Thread-1\"",
            "    run (threading.py:982)", "    _bootstrap (threading.py:1002)", ""]  # fmt: skip


def judged(folder: Path, **logs: Iterable[str]) -> Frame:
    for name, lines in logs.items():
        (folder / f"{name}.out").write_text(joined(lines))
    return open_paths([folder])


def main_of(frame: Frame, rank: int) -> list[str]:
    """Functions of a rank's main thread, the innermost first; [] if it has no stack."""
    stack = frame.ranks[rank].main_stack if rank in frame.ranks else None
    return [one.function for one in stack.frames] if stack is not None else []


def why(frame: Frame) -> str:
    return frame.verdicts[0].why.text


# -- what the programs really print


def run(
    folder: Path, *arguments: str, stderr: int | IO[bytes] = subprocess.PIPE
) -> subprocess.Popen[bytes]:
    (folder / "train.py").write_text(PROGRAM)
    command = [sys.executable, str(folder / "train.py"), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr)


@pytest.mark.parametrize("option", ["--nonblocking", "--native", "--locals"])
def test_stacks_of_the_installed_py_spy(tmp_path: Path, option: str) -> None:
    process = run(tmp_path, "--local_rank=3")
    try:
        assert process.stdout is not None
        process.stdout.readline()
        said = subprocess.run(
            [SPY, "dump", option, "--pid", str(process.pid)],
            capture_output=True, text=True, timeout=TIMEOUT_S, check=True,
        ).stdout  # fmt: skip
    finally:
        process.kill()
        process.communicate()
    text = PySpyText()
    assert all(text.take(line) for line in said.splitlines())
    assert not text.done
    assert text.take("")
    assert text.done
    assert (text.pid, text.command.endswith("--local_rank=3")) == (process.pid, True)
    main, other = sorted(text.threads, key=lambda one: one.name != "MainThread")
    python = [one for one in main.frames if not one.native]
    names = [one.function.rpartition(".")[2] for one in python]
    assert names[-3:] == ["inner", "load", "<module>"]
    assert (main.tid, main.owns_gil, python[-3].file) == (process.pid, False, "train.py")
    assert other.name == "helper" or option == "--native"
    assert (("size", "3") in python[-3].variables) == (option == "--locals")
    assert any(one.native for one in main.frames) == (option == "--native")
    (tmp_path / "rank0.out").write_text(said)
    assert "inner" in " ".join(main_of(open_paths([tmp_path / "rank0.out"]), 0))


@pytest.mark.parametrize(
    ("end", "verdicts"), [("crash", [("dead", (0,))]), ("abort", []), ("dump", [])]
)
def test_stacks_of_the_installed_faulthandler(
    tmp_path: Path, end: str, verdicts: list[tuple[str, tuple[int, ...]]]
) -> None:
    log = tmp_path / "rank0.out"
    with log.open("wb") as output:
        process = run(tmp_path, end, stderr=output)
        try:
            if end == "dump":
                assert process.stdout is not None
                process.stdout.readline()
                process.kill()
            process.communicate(timeout=TIMEOUT_S)
        finally:
            process.kill()
    frame = open_paths([log])
    assert main_of(frame, 0) == ["inner", "load", "<module>"]
    assert [thread.name for thread in frame.ranks[0].threads] == ["", "MainThread"]
    assert text_of(join(thread_parts(frame.ranks[0].threads[1]))) == "MainThread"  # not "idle"
    assert [(one.kind, one.culprits) for one in frame.verdicts] == verdicts
    if verdicts:
        assert signal.Signals(signal.SIGSEGV).name in frame.verdicts[0].headline


def test_names_of_threads_in_python_3_14_and_what_may_stand_in_a_stack() -> None:
    lines = ["Current thread 0x00007f0000000001 [python] (most recent call first):",
             "  Garbage-collecting", '  File "/a.py", line ??? in f', "  ...", "",
             "Thread 0x00007f0000000002 [pt_autograd_0] (most recent call first):",
             "  <no Python frame>"]  # fmt: skip
    text = FaultText()
    assert all(text.take(line) for line in lines)
    assert [(one.name, len(one.frames)) for one in text.threads] == [
        ("python", 1),
        ("MainThread", 0),
    ]
    assert not text.take("Extension modules: numpy")
    assert not text.take(lines[0])  # the next dump


# -- why a rank was late


def late(*stacks: list[str]) -> list[list[str]]:
    """By rank: what each writes if rank 1 is late, and the stack after it."""
    return [[*part, *stack] for part, stack in zip(one_late(TORCH_2_7), stacks, strict=True)]


def test_a_stack_shows_why_a_rank_was_late(tmp_path: Path) -> None:
    parts = late(WAITS, LOADS, WAITS, WAITS)
    frame = judged(tmp_path, **{f"rank{rank}": part for rank, part in enumerate(parts)})
    (verdict,) = frame.verdicts
    assert (verdict.kind, verdict.culprits) == ("not_entered", (1,))
    assert verdict.why.cause == "dataloader"
    assert "train.py:118 (step)" in why(frame)
    assert any("rank1.out:2: Fatal Python error" in line for line in verdict.evidence)


def test_a_rank_inside_a_call_may_hang_in_it(tmp_path: Path) -> None:
    parts = late(WAITS, WAITS, WAITS, WAITS)
    frame = judged(tmp_path, **{f"rank{rank}": part for rank, part in enumerate(parts)})
    assert frame.verdicts[0].why.cause == "unknown"
    assert "by its stack, the rank was in a call of torch.distributed at train.py:120" in why(frame)


def test_a_stack_from_before_the_hang_shows_nothing(tmp_path: Path) -> None:
    parts = one_late(TORCH_2_7)
    old = [f"2026-11-29 09:00:00 {line}" for line in spy(4201)]
    frame = judged(tmp_path, rank1=[*old, *parts[1]], others=[*parts[0], *parts[2], *parts[3]])
    assert main_of(frame, 1) == []
    assert "stacks of rank 1 are older than the ops that timed out: left out" in notes(frame)
    new = [line.replace("09:00:00", "10:05:00") for line in old]
    frame = judged(tmp_path, rank1=[*new, *parts[1]], others=[*parts[0], *parts[2], *parts[3]])
    assert main_of(frame, 1)[0] == "_try_get_data"


def test_ranks_of_which_only_stacks_are_known(tmp_path: Path) -> None:
    waits = ["    all_reduce (torch/distributed/distributed_c10d.py:2806)", "    step (train.py:3)"]
    parts = {f"rank{rank}": [*spy(4000)[:4], *waits] for rank in (0, 2, 3)}
    frame = judged(tmp_path, **parts, rank1=spy(4001))
    assert sorted(frame.ranks) == [0, 1, 2, 3]
    assert [(one.kind, one.culprits) for one in frame.verdicts] == [("not_entered", (1,))]
    assert "ranks 0,2-3 wait" in frame.verdicts[0].headline


@pytest.mark.parametrize(
    ("head", "code", "kind"),
    [
        ("Timeout (0:05:00)!", 1, "not_entered"),  # dump_traceback_later(exit=True)
        ("Timeout (0:05:00)!", -9, "dead"),
        ("Fatal Python error: Aborted", -6, "not_entered"),
        ("Fatal Python error: Aborted", 3, "dead"),
    ],
)
def test_an_end_that_follows_from_the_stack(
    tmp_path: Path, head: str, code: int, kind: str
) -> None:
    """Whoever ends all ranks to have their stacks ends none by its own fault."""
    parts = [after(f"[default{rank}]:", [head, *(LOADS if rank == 2 else WAITS)[1:]])
             for rank in range(3)]  # fmt: skip
    rows = [(rank, code if rank != 1 else min(code, 1), "10:11:12") for rank in range(3)]
    frame = judged(tmp_path, job=[*(line for part in parts for line in part), *table(*rows)])
    assert [one.kind for one in frame.verdicts][:1] == [kind]
    assert kind == "dead" or frame.verdicts[0].culprits == (2,)
    assert all(main_of(frame, rank) for rank in range(3))


# -- whose a stack is


def whose(folder: Path, *lines: Iterable[str]) -> tuple[list[int], int]:
    """The ranks that have a stack, and how many stacks are those of unknown ranks."""
    frame = judged(folder, job=[line for part in lines for line in part])
    known = [rank for rank in frame.ranks if main_of(frame, rank)]
    return known, notes(frame).count("stack of an unknown rank")


OF_10 = "[rank10]:[W1129 10:11:12.1 a.cpp:1] Could not acquire GIL within 300 ms on exit"
TABLE = table((2, 1, "10:11:12"), (5, -6, "10:11:12"))  # pids 4202 and 4205


@pytest.mark.parametrize(
    ("lines", "known", "unknown"),
    [
        ([after("[default2]:", LOADS), TABLE], [2], 0),
        ([after("[default2]:", LOADS)], [], 1),
        ([after("[default2]:", [OF_10, *LOADS])], [10], 0),
        ([after("[default2]:", [OF_10, OF_10.replace("10", "12"), *LOADS])], [], 1),
        ([after("[1,3]<stderr>:", LOADS)], [3], 0),
        ([after("2026-11-29T10:11:12.5Z stderr F [1,3]<stderr>:", LOADS)], [3], 0),
        ([LOADS, TABLE], [], 1),
        ([spy(4205), TABLE], [5], 0),
        ([spy(4205), TABLE, spy(4202)], [2, 5], 0),
        ([spy(4206), TABLE], [], 1),
        ([after("[pod/a/b] ", spy(4205)), TABLE], [], 1),
        ([spy(17, "python train.py --local_rank=2 --lr 1"), TABLE], [2], 0),
        ([spy(17, "sglang::scheduler_TP3")], [3], 0),
        ([spy(17, "sglang::scheduler_TP3"), spy(18, "sglang::scheduler_TP3")], [], 2),
        ([spy(17, "VLLM::Worker_DP1_TP3")], [], 1),
        ([after("[1,0]<stdout>:", [*spy(17), *spy(18)])], [], 2),
        ([after("[1,0]<stdout>:", [*spy(17), *spy(4205)]), TABLE], [5], 1),
        ([after("[1,3]<stderr>:", HELPER)], [], 0),
        ([after("(Worker pid=7) ", [OF_10, *LOADS])], [10], 0),
        ([after("[pod/a/b] ", [OF_10, *LOADS])], [], 1),  # which may be several processes
    ],
)  # fmt: skip
def test_whose_a_stack_is(
    tmp_path: Path, lines: list[list[str]], known: list[int], unknown: int
) -> None:
    assert whose(tmp_path, *lines) == (known, unknown)


def test_stacks_whose_lines_are_mixed(tmp_path: Path) -> None:
    mixed = [line for pair in zip(after("[1,0]<stderr>:", WAITS), after("[1,1]<stderr>:", WAITS),
                                  strict=True) for line in pair]  # fmt: skip
    assert whose(tmp_path, mixed, after("[1,2]<stderr>:", LOADS)) == ([0, 1, 2], 0)


def test_a_crash_while_torch_takes_the_process_down_is_no_cause(tmp_path: Path) -> None:
    crash = [line.replace("Aborted", "Segmentation fault") for line in WAITS]
    parts = late(crash, LOADS, crash, crash)
    frame = judged(tmp_path, **{f"rank{rank}": part for rank, part in enumerate(parts)})
    assert [(one.kind, one.culprits) for one in frame.verdicts] == [("not_entered", (1,))]


# -- where an op was issued

SITE = [
    f"#0 all_gather_into_tensor from {C10D}:3862",
    "#1 step from /home/me/train.py:120",
    "#2 <module> from /home/me/train.py:150",
]
HEAD = "[rank0]:[E1129 10:11:12.1 ProcessGroupNCCL.cpp:667] Stack trace of the failed collective: "


@pytest.mark.parametrize(
    ("lines", "site"),
    [
        ([HEAD, *SITE], "/home/me/train.py:120"),
        (after("[default0]:", [HEAD, *SITE]), "/home/me/train.py:120"),
        ([HEAD, "[rank2]:[E1129 10:11:12.1 a.cpp:6] x", *SITE], "/home/me/train.py:120"),
        ([HEAD, SITE[0], "[rank0]:[E1129 10:11:12.1 a.cpp:6] x", *SITE[1:]], f"{C10D}:3862"),
        ([HEAD, *SITE[1:]], None),
        ([HEAD.replace("collective: ", "collective not found, potentially ..."), *SITE], None),
    ],
)
def test_where_an_op_was_issued_that_torch_gave_up(
    tmp_path: Path, lines: list[str], site: str | None
) -> None:
    parts = one_late(TORCH_2_7)
    frame = judged(tmp_path, job=[*parts[0], *lines, *parts[1], *parts[2], *parts[3]])
    (op,) = frame.ranks[0].pending
    assert (f"{op.site.file}:{op.site.line}" if op.site else None) == site
    assert frame.verdicts[0].culprits == (1,)


# -- ranks that gave up later


def gave_up(rank: int) -> list[str]:
    """A wait of gloo, which has no watchdog, at a line of `WAITS`."""
    text = "RuntimeError: [x/unbound_buffer.cc:78] Timed out waiting 20000ms for recv operation to"
    return after(f"[1,{rank}]<stderr>:2026-11-29 10:11:20 ", raised(rank, f"{text} complete"))


def stacks_at(time: str, late: list[str]) -> list[str]:
    stacks = [WAITS, late, WAITS]
    return [line for rank, stack in enumerate(stacks)
            for line in after(f"[1,{rank}]<stderr>:2026-11-29 {time} ", stack)]  # fmt: skip


@pytest.mark.parametrize(
    ("time", "late", "said"),
    [
        ("10:11:10", LOADS, ("not_entered", "dataloader")),
        ("10:11:10", fault("/home/me/train.py:7 read", "/home/me/train.py:9 <module>"),
         ("undecided", "")),
        ("10:10:50", LOADS, ("undecided", "unknown")),  # before that wait
    ],
)  # fmt: skip
def test_ranks_that_gave_up_had_waited_where_their_stacks_show(
    tmp_path: Path, time: str, late: list[str], said: tuple[str, str]
) -> None:
    frame = judged(tmp_path, job=[*stacks_at(time, late), *gave_up(0), *gave_up(2)])
    verdict = frame.verdicts[0]
    assert (verdict.kind, verdict.why.cause if said[1] else "") == said
    assert verdict.culprits == ((1,) if said[0] == "not_entered" else ())
    assert ("gave up waiting" in verdict.headline) == (said[1] == "unknown")


def test_the_time_of_a_file_is_that_of_the_stack_in_it(tmp_path: Path) -> None:
    waits = {rank: after(f"[1,{rank}]<stderr>:2026-11-29 10:11:10 ", WAITS) for rank in (0, 2)}
    parts = [line for rank, wait in waits.items() for line in [*wait, *gave_up(rank)]]
    (tmp_path / "job.out").write_text(joined(parts))
    alone = tmp_path / "rank1.txt"
    alone.write_text(joined(spy(17)))
    for seconds, culprits in ((-60, ()), (-1, (1,))):
        at = wall_ns_of(("2026", "11", "29", "10", "11", "20")) / 1e9 + seconds
        os.utime(alone, (at, at))
        assert open_paths([tmp_path / "job.out", alone]).verdicts[0].culprits == culprits

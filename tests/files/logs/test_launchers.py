"""How mpirun and srun say that a process ended, and which rank that was."""

from __future__ import annotations

from pathlib import Path

import pytest

from files.frames import notes
from files.logs.eras import table
from frtop_tui.files.loader import open_paths
from frtop_tui.files.logs.prefixes import head_of, tagged_once

MPI_SIGNAL = (
    "mpirun noticed that process rank 1 with PID 0 on node node1 exited on signal 11"
    " (Segmentation fault)."
)
MPI_CODE = """\
mpirun detected that one or more processes exited with non-zero status, thus causing
the job to be terminated. The first process to do so was:

  Process name: [{}]
  Exit code:    3"""
RAISED = """\
Traceback (most recent call last):
  File "/home/me/train.py", line 8, in load
    raise ValueError("bad sample")
ValueError: bad sample"""
SRUN = "srun: error: node2: task 1: {}\nsrun: error: node1: tasks 0,2: Terminated"
TERMINATED = "srun: error: node2: task 1: Terminated"
STEP_ENDS = "srun: launch/slurm: _step_signal: Terminating StepId=9.0"
CLOSED = """\
{0}[rank{1}]: Traceback (most recent call last):
{0}[rank{1}]:   File "/home/me/train.py", line 9, in main
{0}[rank{1}]: RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer"""


@pytest.mark.parametrize(
    ("lines", "blamed"),
    [
        ([MPI_SIGNAL], {1}),
        ([MPI_CODE.format("[34079,1],1")], {1}),
        ([MPI_CODE.format("prterun-node1-12@1,1")], {1}),
        ([CLOSED.format("[1,0]<stderr>:", 0), MPI_SIGNAL], {1}),
        # Only lines of tasks show that these are ranks.
        ([CLOSED.format("0: ", 0), SRUN.format("Segmentation fault")], {1}),
        ([CLOSED.format("2: ", 2), SRUN.format("Bus error (core dumped)")], {1}),
        ([CLOSED.format("2: ", 2), SRUN.format("Exited with exit code 3")], {1}),
        ([CLOSED.format("2: ", 2), SRUN.format("Out Of Memory")], {1}),
        ([CLOSED.format("", 2), SRUN.format("Segmentation fault")], set()),
        ([CLOSED.format("1: ", 2), SRUN.format("Segmentation fault")], set()),
        ([SRUN.format("Segmentation fault")], set()),
        ([CLOSED.format("2: ", 2), SRUN.format("Terminated")], set()),
        ([CLOSED.format("2: ", 2), TERMINATED, STEP_ENDS, SRUN.format("Terminated")], {1}),
        # srun ends tasks that are left.
        ([CLOSED.format("2: ", 2), STEP_ENDS, SRUN.format("Killed")], set()),
        ([CLOSED.format("2: ", 2), SRUN.format("Killed"), STEP_ENDS], {1}),
        # A task of torchrun, with two ranks.
        (
            [
                CLOSED.format("0: [default0]:", 0),
                *(f"0: {line}" for line in table((0, -15, "10:11:12"))),
                SRUN.format("Killed"),
            ],
            set(),
        ),
    ],
)
def test_the_rank_that_a_launcher_says_to_have_ended(
    tmp_path: Path, lines: list[str], blamed: set[int]
) -> None:
    log = tmp_path / "job.out"
    log.write_text("\n".join(lines) + "\n")
    frame = open_paths([log])
    assert {rank for one in frame.verdicts for rank in one.culprits} == blamed


SPAWNED = "torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with {}"
PARENT = """\
Traceback (most recent call last):
  File "/home/me/train.py", line 20, in main
    raise ProcessRaisedException(msg, error_index, failed_process.pid)
torch.multiprocessing.spawn.ProcessRaisedException:

-- Process 1 terminated with the following error:
"""
CHAIN = "\nThe above exception was the direct cause of the following exception:\n\n"


@pytest.mark.parametrize(
    ("text", "blamed"),
    [
        (SPAWNED.format("signal SIGKILL"), {1}),
        (SPAWNED.format("exit code 3"), {1}),
        (SPAWNED.format("exit code 1"), set()),  # it may be a closed connection
        (f"{SPAWNED.format('signal SIGTERM')}\n{RAISED}", set()),  # of a whole job, perhaps
        (f"{SPAWNED.format('exit code 3')}\n{SPAWNED.format('exit code 3')}", set()),  # two hosts
        (f"{CLOSED.format('', 4)}\n{SPAWNED.format('exit code 3')}", set()),  # other ranks
        (f"{PARENT}{RAISED}", {1}),
        (f"{PARENT}{RAISED}\n{CHAIN}{RAISED}", {1}),
        (f"{RAISED}\n{PARENT}{RAISED}", set()),  # one was handled
    ],
)
def test_a_process_of_spawn_is_a_rank_if_nothing_else_names_any(
    tmp_path: Path, text: str, blamed: set[int]
) -> None:
    log = tmp_path / "job.out"
    log.write_text(f"{text}\n")
    frame = open_paths([log])
    assert {rank for one in frame.verdicts for rank in one.culprits} == blamed
    assert ("a process that spawn started" in notes(frame)) == (frame.ranks.keys() == {1})


def test_an_exception_of_a_task_that_had_not_joined_is_that_of_its_rank(tmp_path: Path) -> None:
    log = tmp_path / "job.out"
    early = (
        '1: Traceback (most recent call last):\n1:   File "a.py", line 2, in load\n1: OSError: x'
    )
    log.write_text(
        "\n".join([CLOSED.format("2: ", 2), early, SRUN.format("Exited with exit code 1")])
    )
    (verdict,) = open_paths([log]).verdicts
    assert verdict.culprits == (1,)
    assert "OSError: x" in verdict.headline


@pytest.mark.parametrize(
    ("file", "blamed"), [("/home/me/train.py", {1}), ("/x/torch/distributed/run.py", set())]
)
def test_a_task_that_raised_in_a_training_is_a_rank(
    tmp_path: Path, file: str, blamed: set[int]
) -> None:
    log = tmp_path / "job.out"
    lines = RAISED.replace("/home/me/train.py", file).splitlines()
    log.write_text(
        "".join(f"1: {line}\n" for line in lines) + SRUN.format("Exited with exit code 1") + "\n"
    )
    frame = open_paths([log])
    assert {rank for one in frame.verdicts for rank in one.culprits} == blamed


def test_open_mpi_repeats_its_tag_within_a_line() -> None:
    line = "[1,0]<stderr>:ValueError[1,0]<stderr>:: [1,0]<stderr>:bad sample[1,0]<stderr>:"
    assert head_of(tagged_once(line), 2026).text == "ValueError: bad sample"
    assert head_of(tagged_once('[1,0]<stderr>:  File "a.py"'), 2026).text == '  File "a.py"'
    assert tagged_once("5/12[1,2]<stderr>:step") == "5/12[1,2]<stderr>:step"


ROW = """\
  time      : 2026-11-29_10:11:12
  host      : node1
  rank      : {0} (local_rank: {0})
  exitcode  : {1} (pid: 42)
  error_file: /tmp/error.json
  traceback : {2}"""
ENDED = ROW.format(0, -15, "Signal 15 (SIGTERM) received by PID 41")


def test_an_exception_in_torchruns_table_is_that_of_its_rank(tmp_path: Path) -> None:
    log = tmp_path / "job.out"
    log.write_text(f"{ENDED}\n{ROW.format(1, 1, RAISED.replace(chr(10), chr(10) + '  '))}\n")
    (verdict,) = open_paths([log]).verdicts
    assert verdict.culprits == (1,)
    assert "ValueError: bad sample at train.py:8 (load)" in verdict.headline


def test_a_rank_in_torchruns_table_has_not_gone_on(tmp_path: Path) -> None:
    log = tmp_path / "job.out"
    failed = "E1129 10:11:12.000000 7 api.py:2] failed (exitcode: 1) local_rank: 1 (pid: 42) of x"
    row = ROW.format(1, 1, RAISED.replace("\n", "\n  "))
    log.write_text("\n".join([RAISED.replace("\n", "\n[rank1]: "), failed, ENDED, row, ""]))
    log.write_text(f"[rank1]: {log.read_text()}")
    frame = open_paths([log])
    assert [one.culprits for one in frame.verdicts] == [(1,)]
    assert "restarted" not in notes(frame)


@pytest.mark.parametrize(
    ("before", "codes", "blamed"),
    [
        ([RAISED], {1: 1}, {1}),
        ([RAISED, RAISED], {1: 1}, set()),  # whose is which?
        ([RAISED], {1: 1, 2: 1}, set()),
        ([RAISED, CLOSED.format("", 2)], {1: 1, 2: 1}, set()),  # handled, perhaps
        ([RAISED], {1: -15}, set()),
        ([RAISED.replace("ValueError", "torch.distributed.DistStoreError").replace(
            "bad sample", "Timed out after 21 seconds waiting for clients. 3/4 clients joined.")],
         {1: 1}, set()),
    ],
)  # fmt: skip
def test_an_exception_that_no_line_gives_to_a_rank(
    tmp_path: Path, before: list[str], codes: dict[int, int], blamed: set[int]
) -> None:
    """Of processes that torchrun has started without prefixes, before they joined the group."""
    log = tmp_path / "job.out"
    rows = [ROW.format(rank, code, "To enable traceback see: x") for rank, code in codes.items()]
    log.write_text("\n".join([*before, ENDED, *rows]) + "\n")
    frame = open_paths([log])
    assert {rank for one in frame.verdicts for rank in one.culprits} == blamed


def test_of_torchruns_folders_the_last_attempt_is_judged(tmp_path: Path) -> None:
    for attempt, rank in ((0, 3), (1, 1)):
        folder = tmp_path / "log" / "17_x" / f"attempt_{attempt}" / str(rank)
        folder.mkdir(parents=True)
        lines = "".join(f"[rank{rank}]: {line}\n" for line in RAISED.splitlines())
        (folder / "stderr.log").write_text(lines)
        (folder / "error.json").write_text("{}")
    for given in (tmp_path / "log", tmp_path / "log" / "17_x"):
        frame = open_paths([given])
        (verdict,) = frame.verdicts
        assert verdict.culprits == (1,)
        assert "attempt_1/1/stderr.log:4: " in verdict.evidence[0]
        assert "1 file of attempts before attempt_1 left out" in notes(frame)


def test_a_rank_that_torchrun_ended_was_not_ended_from_outside(tmp_path: Path) -> None:
    log = tmp_path / "job.out"
    closing = "W1129 10:11:12.000000 7 api.py:1028] Sending process 42 closing signal SIGTERM"
    rows = [ROW.format(0, -15, "x"), ROW.format(1, -15, "x").replace("pid: 42", "pid: 43")]
    log.write_text("\n".join([closing, *rows]) + "\n")
    (verdict,) = open_paths([log]).verdicts
    assert verdict.headline.startswith("rank 1 died: signal 15")


@pytest.mark.parametrize(
    ("before", "text", "blamed"),
    [
        ("[default1]:", "free(): double free detected in tcache 2", {1}),
        ("[default1]:", "corrupted size vs. prev_size in fastbins", {1}),
        ("[default1]:", "*** stack smashing detected ***: terminated", {1}),
        ("[default1]:", "Fatal Python error: deletion of interned string failed", {1}),
        ("[default1]:", "Fatal Python error: Aborted", set()),  # gloo aborts, too
        ("[default1]:", "checkpoint-7 is corrupt", set()),
        ("", "free(): double free detected in tcache 2", {1}),  # no other rank has aborted
        ("", "free(): invalid pointer\nfree(): invalid pointer", set()),
    ],
)
def test_why_a_process_aborted_itself(
    tmp_path: Path, before: str, text: str, blamed: set[int]
) -> None:
    log = tmp_path / "job.out"
    rows = [ROW.format(1, -6, "x"), ROW.format(0, 1, "x")]
    log.write_text("\n".join([before + text, *rows]) + "\n")
    frame = open_paths([log])
    assert {rank for one in frame.verdicts for rank in one.culprits} == blamed

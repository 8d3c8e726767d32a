"""A command with pipes on its ends: nothing blocks, nothing is written to a file of others."""

from __future__ import annotations

import os
import signal

from frtop_tui.connect.pipes.process import MAX_UNSENT, LeavingProcesses, PipeProcess
from waiting import wait_for


def test_what_nobody_reads_waits_and_is_bounded() -> None:
    process = PipeProcess(("sleep", "100"), {})
    assert process.write(b"x" * (MAX_UNSENT - 1))
    assert 0 < process.unsent < MAX_UNSENT
    assert not process.write(b"x" * MAX_UNSENT)
    end(process)


def test_after_the_end_of_its_input_nothing_is_written_to_the_next_file() -> None:
    process = PipeProcess(("sleep", "100"), {})
    process.write(b"x" * 1_000_000)
    reader, writer = os.pipe()
    process.close_input()
    os.dup2(writer, process.input)  # the next file gets the same number
    try:
        process.flush()
        assert not process.unsent
        os.set_blocking(reader, False)
        os.close(writer)
        assert not readable(reader)
    finally:
        os.close(process.input)
        os.close(reader)
    end(process)


def test_a_process_that_ignores_everything_is_killed() -> None:
    process = PipeProcess(("sh", "-c", "trap '' TERM HUP; echo here; exec sleep 100"), {})
    wait_for(lambda: process.read() == [b"here"], "it runs")
    end(process)
    assert process.status() == -signal.SIGKILL


def readable(fd: int) -> bytes:
    try:
        return os.read(fd, 10)
    except BlockingIOError:
        return b""


def end(process: PipeProcess) -> None:
    process.close_input()
    leaving = LeavingProcesses()
    leaving.add(process, 0.0)
    leaving.await_end()
    assert process.status() is not None

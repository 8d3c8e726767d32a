"""What a host on the way does: input says for whom it is, output comes with its sender's number."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from frtop_probe.pipe import fan_out
from frtop_probe.pipe.start_script import start_script
from waiting import wait_for

PROGRAM = Path(fan_out.__file__)


class Way:
    """A running one, with `sh` as every command unless told otherwise."""

    def __init__(self, *commands: list[str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(PROGRAM)], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )  # fmt: skip
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._seen = b""
        assert self.line().startswith("frtop-relay {")
        self.write("hosts " + json.dumps(commands or (["sh"], ["sh"])))

    def write(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def line(self) -> str:
        """The next line, which has to come within 10 s."""
        assert self.process.stdout is not None
        end, fd = time.monotonic() + 10, self.process.stdout.fileno()
        while b"\n" not in self._seen:
            ready, _, _ = select.select([fd], [], [], max(0, end - time.monotonic()))
            assert ready, f"nothing came after {self._seen!r}"
            piece = os.read(fd, 65536)
            assert piece, "its output has ended"
            self._seen += piece
        line, _, self._seen = self._seen.partition(b"\n")
        return line.decode()

    def lines(self, count: int) -> set[str]:
        return {self.line() for _ in range(count)}

    @property
    def children(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def close(self) -> None:
        for one in self.children if self.process.poll() is None else []:
            one.kill()
        self.process.kill()
        self.process.wait()
        for end in (self.process.stdin, self.process.stdout):
            assert end is not None
            with suppress(BrokenPipeError):
                end.close()


@pytest.fixture
def way() -> Iterator[Way]:
    one = Way()
    yield one
    one.close()


def test_input_goes_to_whom_it_names_and_output_is_labelled(way: Way) -> None:
    way.write("to 0,1 echo hello; echo again")
    assert way.lines(4) == {"0: hello", "0: again", "1: hello", "1: again"}
    way.write("to 1 echo one")
    for nobody in ("7", "x", "-1", "", "999999999"):
        way.write(f"to {nobody} echo nobody")
    way.write("echo nobody")
    way.write("to 7,1,x,0 echo both")
    assert way.lines(3) == {"1: one", "0: both", "1: both"}


def test_what_is_stored_goes_to_each_when_it_is_its_turn(way: Way) -> None:
    way.write("store greeting echo hello")
    way.write("store greeting echo again")
    way.write("give greeting 1")
    assert [way.line(), way.line()] == ["1: hello", "1: again"]
    way.write("give nothing 0")
    way.write("give greeting 0")
    assert [way.line(), way.line()] == ["0: hello", "0: again"]


def test_what_is_stored_is_bounded(way: Way) -> None:
    for _ in range(40):
        way.write(f"store much : {'x' * 250_000}")
    way.write("store much echo beyond")
    way.write("store little echo here")
    way.write("give much 0")
    way.write("give little 0")
    assert way.line() == "0: here"


def test_a_command_that_has_ended_is_run_again(way: Way) -> None:
    way.write("start 0")  # it runs
    way.write("start 7")
    way.write("start x")
    way.write("to 0 exit 3")
    assert way.line().startswith('0: frtop-ended {"status": 3')
    way.write("start 0")
    way.write("to 0,1 echo here")
    assert way.lines(2) == {"0: here", "1: here"}
    way.write("end 0")
    assert way.line().startswith('0: frtop-ended {"status": 0')
    way.write("to 0 echo nobody")
    way.write("to 1 exit")
    assert way.line().startswith("1: frtop-ended")
    for _ in range(20):
        way.write("start 0")
        way.write("to 0 exit 0")
        assert way.line().startswith("0: frtop-ended")
    files = len(list(Path(f"/proc/{way.process.pid}/fd").iterdir()))
    assert files < 8, "a command that has ended leaves no open files"


def test_the_end_of_a_command_is_told_with_its_last_words(way: Way) -> None:
    way.write("to 0 echo no route to host >&2; exit 255")
    said = way.line()
    assert said.startswith("0: frtop-ended ")
    assert json.loads(said.partition("ended ")[2]) == {
        "status": 255, "errors": ["no route to host"],
    }  # fmt: skip
    way.write("to 0,1 echo still here")
    assert way.line() == "1: still here"


def test_a_command_that_is_not_there_is_told_too() -> None:
    way = Way(["no-such-program"], ["sh"])
    try:
        assert way.line().startswith('0: frtop-ended {"status": 127')
        way.write("to 0,1 echo here")
        assert way.line() == "1: here"
    finally:
        way.close()


@pytest.mark.parametrize("line", ["hosts", "hosts {}", "hosts [1]", "hosts [[]]", "sh"])
def test_anything_but_a_list_of_commands_is_refused(line: str) -> None:
    done = subprocess.run(
        [sys.executable, str(PROGRAM)], input=line.encode() + b"\n", capture_output=True,
        timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert b"frtop-error" in done.stdout
    assert b"Traceback" not in done.stderr


def test_nothing_is_left_when_the_operator_is_gone(way: Way) -> None:
    way.write("to 0,1 sleep 1000 & echo started; wait")
    assert way.lines(2) == {"0: started", "1: started"}
    children = way.children
    assert len(children) == 4
    assert way.process.stdin is not None
    way.process.stdin.close()
    way.process.wait(60)
    wait_for(lambda: not any(one.is_running() for one in children), "all have ended")


@pytest.mark.long
def test_a_command_that_reads_nothing_holds_up_nobody() -> None:
    way = Way(["sleep", "1000"], ["sh"])
    try:
        for _ in range(40):
            way.write(f"to 0,1 # {'x' * 250_000}")
        way.write("to 1 echo here")
        found = way.lines(2)
        assert "1: here" in found
        assert any(line.startswith('0: frtop-ended {"status": -9') for line in found)
    finally:
        way.close()


def test_it_starts_as_any_program_of_the_pipe_does() -> None:
    script = start_script(program="fan_out")
    done = subprocess.run(
        ["sh"], input=script, capture_output=True, timeout=60, check=True,
    )  # fmt: skip
    assert done.stdout.startswith(b"frtop-relay {")

"""The end of files that real processes write to, in every place that output may go."""

from __future__ import annotations

import asyncio
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import pytest

from frtop_probe import wire
from frtop_probe.features.output import at_host
from frtop_probe.features.output.at_host import AT_ONCE, MAX_BYTES, OutputReader
from frtop_probe.features.output.messages import ReadOutput
from frtop_probe.proc import processes
from frtop_probe.proc.output_places import output_places
from waiting import wait_for

Start = Callable[..., Any]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a process that writes a line to both streams; returns it as an agent tracks it."""
    started: list[subprocess.Popen[bytes]] = []

    def start(out: IO[Any] | int, errors: IO[Any] | int = subprocess.STDOUT) -> Any:
        script = "echo first; echo oops >&2; read _"
        child = subprocess.Popen(["sh", "-c", script], stdin=subprocess.PIPE, stdout=out,
                                 stderr=errors)  # fmt: skip
        started.append(child)
        # Once it waits for input, it has written.
        wait_for(lambda: "S" in _state(child.pid), "the process waits")
        found = processes.read_stat(child.pid)
        assert found is not None
        return SimpleNamespace(
            pid=child.pid, start_ticks=found.start_ticks, lives=True, key=7, identity=None,
            output_places=output_places(child.pid), child=child,
        )  # fmt: skip

    yield start
    for child in started:
        child.kill()
        child.communicate()


def _state(pid: int) -> str:
    found = processes.read_process(pid)
    reads = found is not None and found.syscall in ("read", "")
    return found.state if found is not None and reads else ""


def end(rank: Any) -> None:
    rank.child.kill()
    rank.child.wait()
    rank.lives = False


def read(rank: Any, size: int = MAX_BYTES) -> wire.OutputResponse:
    return asyncio.run(OutputReader().read("node1", ReadOutput(3, 7, size), rank))


def own(rank: Any, size: int = MAX_BYTES) -> wire.OutputFile:
    """The file of the rank's stdout, not that of its launcher, which runs the tests."""
    answer = read(rank, size)
    assert (answer.id, answer.key, answer.host, answer.error) == (3, 7, "node1", "")
    return next(file for file in answer.files if "stdout" in file.streams)


def test_both_streams_in_one_file_are_read_once(tmp_path: Path, start: Start) -> None:
    path = tmp_path / "job.out"
    with path.open("w") as file:
        found = own(start(file))
    assert (found.path, found.streams) == (str(path), ("stdout", "stderr"))
    assert (found.text, found.size, found.error) == ("first\noops\n", 11, "")
    assert 0 <= found.quiet_s < 60


def test_two_files_are_two(tmp_path: Path, start: Start) -> None:
    with (tmp_path / "o").open("w") as out, (tmp_path / "e").open("w") as errors:
        answer = read(start(out, errors))
    texts = {file.streams: file.text for file in answer.files}
    assert (texts["stdout",], texts["stderr",]) == ("first\n", "oops\n")


def test_only_the_last_whole_lines_of_a_large_file_are_read(tmp_path: Path, start: Start) -> None:
    path = tmp_path / "job.out"
    with path.open("ab") as file:
        rank = start(file)
        os.truncate(path, 100_000_000)
        for number in range(20_000):
            file.write(b"line %d \xff\n" % number)
    found = own(rank)
    lines = found.text.splitlines()
    assert found.size > 100_000_000
    assert MAX_BYTES - 20 < len(found.text.encode("utf-8")) < 2 * MAX_BYTES  # a bad byte takes 3
    assert lines[-1] == "line 19999 �"
    assert lines[0].startswith("line ")
    assert own(rank, 100).text.splitlines()[-1] == lines[-1]
    assert len(own(rank, 10**9).text) == len(found.text)
    assert own(rank, -5).text == ""


def test_a_file_that_was_deleted_is_read_as_long_as_it_is_open(
    tmp_path: Path, start: Start
) -> None:
    path = tmp_path / "job.out"
    with path.open("w") as file:
        rank = start(file)
    path.unlink()
    assert own(rank).text == "first\noops\n"
    end(rank)
    found = own(rank)
    assert (found.text, found.error) == ("", "gone")


def test_a_file_is_read_after_the_end_of_its_process(tmp_path: Path, start: Start) -> None:
    path = tmp_path / "job.out"
    with path.open("w") as file:
        rank = start(file)
    end(rank)
    assert own(rank).text == "first\noops\n"


def replaced_by_another(path: Path) -> None:
    path.rename(path.with_name("job.out.1"))
    path.write_text("of somebody else\n")


def replaced_by_a_link(path: Path) -> None:
    path.rename(path.with_name("job.out.1"))
    path.symlink_to(path.with_name("job.out.1"))


def replaced_by_a_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize("change", [replaced_by_another, replaced_by_a_link, replaced_by_a_fifo])
def test_what_has_the_name_later_is_not_read(
    tmp_path: Path, start: Start, change: Callable[[Path], None]
) -> None:
    path = tmp_path / "job.out"
    with path.open("w") as file:
        rank = start(file)
    end(rank)
    change(path)
    found = own(rank)
    assert found.text == ""
    assert found.error in ("gone", "not a file")
    assert found.help


def pipe(_: Path) -> tuple[int, ...]:
    return os.pipe()


def fifo(folder: Path) -> tuple[int, ...]:
    os.mkfifo(folder / "fifo")
    return (os.open(folder / "fifo", os.O_RDWR),)


def terminal(_: Path) -> tuple[int, ...]:
    return os.openpty()


def nothing(_: Path) -> tuple[int, ...]:
    return (os.open(os.devnull, os.O_WRONLY),)


@pytest.mark.parametrize(("make", "kind"), [
    (pipe, "a pipe"), (fifo, "a pipe"), (terminal, "a terminal"), (nothing, "another device"),
])  # fmt: skip
def test_what_is_no_file_says_so(
    tmp_path: Path, start: Start, make: Callable[[Path], tuple[int, ...]], kind: str
) -> None:
    descriptors = make(tmp_path)
    found = own(start(descriptors[-1]))
    for descriptor in descriptors:
        os.close(descriptor)
    assert (found.text, found.error) == ("", "not a file")
    assert kind in found.help


def test_the_file_of_a_program_that_reads_the_pipe_is_read(tmp_path: Path) -> None:
    path, pid, wait = tmp_path / "job.out", tmp_path / "pid", tmp_path / "wait"
    os.mkfifo(wait)
    program = f"echo first; echo oops >&2; echo $$ > {pid}; read _ < {wait}"
    command = f"sh -c '{program}' 2>&1 | tee {path}; true"
    shell = subprocess.Popen(["sh", "-c", command], stdout=subprocess.DEVNULL)
    ends = os.open(wait, os.O_RDWR)
    wait_for(lambda: path.exists() and "oops" in path.read_text() and pid.exists(), "tee writes")
    number = int(wait_for(pid.read_text, "the pid"))
    found = processes.read_stat(number)
    assert found is not None
    rank: Any = SimpleNamespace(
        pid=number, start_ticks=found.start_ticks, lives=True, key=7, identity=None,
        output_places=(),
    )  # fmt: skip

    def of_tee() -> wire.OutputFile:
        (file,) = [one for one in read(rank).files if one.path == str(path)]
        return file

    assert of_tee().text == "first\noops\n"
    assert of_tee().streams[:2] == ("stdout through tee", "stderr through tee")
    os.write(ends, b"\n")
    shell.wait(60)
    os.close(ends)
    rank.lives = False
    assert of_tee().text == "first\noops\n"  # the agent knows where the lines are


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
def test_a_file_of_another_user_is_left_alone(tmp_path: Path, start: Start) -> None:
    path = tmp_path / "job.out"
    with path.open("w") as file:
        rank = start(file)
    os.chown(path, 12345, 12345)
    found = own(rank)
    assert (found.text, found.error) == ("", "permission")
    assert "12345" in found.help


@pytest.mark.skipif(os.getuid() == 0, reason="root reads everything")
def test_a_file_that_may_not_be_read_says_so(tmp_path: Path, start: Start) -> None:
    path = tmp_path / "job.out"
    with path.open("w") as file:
        rank = start(file)
    path.chmod(0o200)
    assert own(rank).error == "permission"


@pytest.mark.parametrize("by_agent", [True, False])
def test_who_does_not_want_it_is_not_read(
    tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch, by_agent: bool
) -> None:
    with (tmp_path / "job.out").open("w") as file:
        rank = start(file)
    if by_agent:
        monkeypatch.setenv("FRTOP_OUTPUT", "0")
    else:
        rank.identity = SimpleNamespace(settings=(("FRTOP_OUTPUT", "0"),))
    answer = read(rank)
    assert (answer.files, answer.error) == ((), "off")
    assert "FRTOP_OUTPUT=0" in answer.help


def test_a_process_that_ended_unseen_has_none(start: Start) -> None:
    rank = start(subprocess.DEVNULL)
    end(rank)
    rank.output_places = ()
    assert read(rank).error == "gone"


def test_the_same_file_of_several_ranks_is_read_once(
    tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    end_of = at_host._end_of

    def counted(named: int, size: int, most: int) -> str:
        seen.append(size)
        return end_of(named, size, most)

    monkeypatch.setattr(at_host, "FRESH_S", 60.0)
    monkeypatch.setattr(at_host, "_end_of", counted)
    with (tmp_path / "job.out").open("a") as file:
        ranks = [start(file) for _ in range(3)]
    reader = OutputReader()
    first = tmp_path / "job.out"

    def texts() -> set[str]:
        found = [asyncio.run(reader.read("a", ReadOutput(), rank)) for rank in ranks]
        return {file.text for one in found for file in one.files if file.path == str(first)}

    assert texts() == {"first\noops\n" * 3}
    assert seen.count(first.stat().st_size) == 1  # others are files of the tests' own output
    with first.open("a") as file:
        file.write("more\n")
    assert texts() == {"first\noops\n" * 3 + "more\n"}


def test_a_hung_file_system_holds_up_nothing_and_few_threads(
    tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = threading.Event()
    monkeypatch.setattr(at_host, "DEADLINE_S", 0.05)
    monkeypatch.setattr(at_host, "_end_of", lambda *_: str(answers.wait(60)))
    with (tmp_path / "job.out").open("w") as file:
        rank = start(file)
    reader = OutputReader()

    async def ask() -> wire.OutputResponse:
        return await reader.read("a", ReadOutput(), rank)

    for _ in range(AT_ONCE):
        assert "deadline" in {file.error for file in asyncio.run(ask()).files}
    assert asyncio.run(ask()).error == "busy"
    answers.set()
    wait_for(lambda: asyncio.run(ask()).error != "busy", "the file system answers again")

"""py-spy as it is, and as it should not be: slow, refused, silent, mad."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frtop_probe import wire
from frtop_probe.eyes import proc, refusal, stacks
from frtop_probe.eyes.source import SourceReader


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    program = tmp_path / "train.py"
    program.write_text(
        "import threading, time\nprint(flush=True)\ntime.sleep(600)  # the culprit\n"
    )
    process = subprocess.Popen([sys.executable, str(program)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


Imposter = Callable[[str], Path]


@pytest.fixture
def imposter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Imposter:
    """Puts a shell script in the place of py-spy."""

    def put(script: str) -> Path:
        path = tmp_path / "py-spy"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        monkeypatch.setattr(stacks, "program", lambda: str(path))
        return path

    return put


async def test_a_stack_has_its_source(sleeper: subprocess.Popen[bytes]) -> None:
    dump = await stacks.dump(sleeper.pid, 10, SourceReader())
    assert (dump.error, dump.help) == ("", "")
    (thread,) = dump.threads
    assert (thread.name, thread.tid) == ("MainThread", sleeper.pid)
    assert thread.frames[0].line == 3
    assert thread.frames[0].source == "time.sleep(600)  # the culprit"


async def test_a_child_that_is_still_in_its_fork_has_no_threads_of_its_parent(
    imposter: Imposter, sleeper: subprocess.Popen[bytes]
) -> None:
    # As recorded of a DataLoader worker that waits for the interpreter's lock in `os.fork()`.
    frame = '{"name": "wait", "filename": "responder.py", "line": 114}'
    parents = f'"os_thread_id": {os.getpid()}, "thread_name": "frtop", "active": true'
    own = f'"os_thread_id": {sleeper.pid}, "thread_name": "MainThread", "active": false'
    rest = f'"thread_id": 1, "owns_gil": false, "frames": [{frame}]'
    imposter(f"echo '[{{{parents}, {rest}}}, {{{own}, {rest}}}]'")
    (thread,) = (await stacks.dump(sleeper.pid, 10)).threads
    assert (thread.name, thread.tid) == ("MainThread", sleeper.pid)


@pytest.mark.parametrize(("tids", "tasks", "left"), [
    ((7, 9), [9], [9]),
    ((9, 7), [7, 8, 9], [9, 7]),
    ((0, 7, 9), [9], [9]),  # Python 3.10 knows that of the main thread alone
    ((0, 9), [8, 9], [0, 9]),
    ((7, 9), [1], [7, 9]),
    ((0, 0), [9], [0, 0]),
    ((7, 9), [], [7, 9]),
    ((), [9], []),
])  # fmt: skip
def test_only_threads_that_the_process_has(
    tids: tuple[int, ...], tasks: list[int], left: list[int]
) -> None:
    threads = tuple(wire.ThreadStack(1, tid, "", False, False, ()) for tid in tids)
    assert [thread.tid for thread in stacks.existing(threads, tasks)] == left


async def test_a_process_that_is_gone() -> None:
    child = subprocess.Popen(["true"])
    child.wait()
    assert (await stacks.dump(child.pid, 10)).error == "gone"


async def test_a_process_that_is_no_python() -> None:
    child = subprocess.Popen(["sleep", "600"])
    try:
        dump = await stacks.dump(child.pid, 10)
    finally:
        child.kill()
        child.wait()
    assert dump.error == "failed"
    assert dump.help.startswith("py-spy: ")


async def test_no_py_spy_at_all(
    sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    monkeypatch.setenv("PATH", "/nowhere")
    dump = await stacks.dump(sleeper.pid, 10)
    assert dump.error == "missing"
    assert "pip install py-spy" in dump.help


def test_py_spy_beside_python_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    beside = tmp_path / "bin" / "py-spy"
    elsewhere = tmp_path / "path" / "py-spy"
    for path in (beside, elsewhere):
        path.parent.mkdir()
        path.touch(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python"))
    monkeypatch.setenv("PATH", str(elsewhere.parent))
    assert stacks.program() == str(beside)
    beside.unlink()
    assert stacks.program() == str(elsewhere)


async def test_one_that_takes_too_long_is_ended(
    sleeper: subprocess.Popen[bytes], imposter: Imposter, tmp_path: Path
) -> None:
    imposter(f"echo $$ > {tmp_path}/pid; exec sleep 600")
    begun = time.monotonic()
    dump = await stacks.dump(sleeper.pid, 0.5)
    assert time.monotonic() - begun < 5
    assert dump.error == "deadline"
    pid = int((tmp_path / "pid").read_text())
    while proc.stat(pid) is not None:
        await asyncio.sleep(0.01)  # the test's own deadline ends this


@pytest.mark.parametrize(
    "complaint",
    ["Error: Permission Denied: Try running again", "Error: Operation not permitted (os error 1)"],
)
async def test_a_refusal_names_the_knob(
    sleeper: subprocess.Popen[bytes],
    imposter: Imposter,
    monkeypatch: pytest.MonkeyPatch,
    complaint: str,
) -> None:
    imposter(f"echo '{complaint}' >&2; exit 1")
    monkeypatch.setattr(refusal, "explain", lambda pid: f"the knob of {pid}")
    dump = await stacks.dump(sleeper.pid, 10)
    assert (dump.error, dump.help) == ("refused", f"the knob of {sleeper.pid}")


async def test_other_failures_are_passed_on_in_one_line(
    sleeper: subprocess.Popen[bytes], imposter: Imposter
) -> None:
    imposter("echo 'Error: Failed to find a python interpreter' >&2; echo Reason: x >&2; exit 1")
    dump = await stacks.dump(sleeper.pid, 10)
    assert (dump.error, dump.help) == ("failed", "py-spy: Failed to find a python interpreter")


@pytest.mark.parametrize("output", ["", "[", "{}", '[{"pid": 1}]', "[1]"])
async def test_an_answer_that_is_no_dump(
    sleeper: subprocess.Popen[bytes], imposter: Imposter, output: str
) -> None:
    imposter(f"echo '{output}'")
    dump = await stacks.dump(sleeper.pid, 10)
    assert dump.error == "failed"


async def test_an_answer_without_end_is_cut_off(
    sleeper: subprocess.Popen[bytes], imposter: Imposter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stacks, "MAX_OUTPUT", 1_000_000)
    imposter("exec yes")
    dump = await stacks.dump(sleeper.pid, 10)
    assert dump.error == "failed"


async def test_one_that_cannot_be_run(sleeper: subprocess.Popen[bytes], imposter: Imposter) -> None:
    imposter("").write_bytes(b"\x7fELF nonsense")
    dump = await stacks.dump(sleeper.pid, 10)
    assert dump.error == "failed"


@given(st.binary(max_size=50))
def test_nonsense_is_no_dump(data: bytes) -> None:
    try:
        stacks.parse(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return


def read(reader: SourceReader, file: str, number: int, seconds: float = 5) -> str:
    reader.ask({file})
    end = time.monotonic() + seconds
    while not reader.ready({file}) and time.monotonic() < end:
        time.sleep(0.005)
    return reader.line(file, number)


def test_lines_that_do_not_exist_are_empty(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text("one\n  two\n" + "x" * 500)
    reader = SourceReader()
    assert read(reader, str(file), 2) == "two"
    assert read(reader, str(file), 0) == read(reader, str(file), 4) == ""
    assert len(read(reader, str(file), 3)) == 200
    assert read(reader, str(tmp_path / "none.py"), 1) == ""
    assert read(reader, str(tmp_path), 1) == ""
    assert read(reader, "\0", 1) == ""


def test_a_file_that_changed_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.py"
    file.write_text("old")
    reader = SourceReader()
    assert read(reader, str(file), 1) == "old"
    file.write_text("newer")
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 60)
    reader.ask({str(file)})
    monkeypatch.undo()
    assert read(reader, str(file), 1) == "newer"


async def test_a_file_system_that_hangs_holds_up_nobody(
    sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = SourceReader()
    stuck = asyncio.Event()
    loop = asyncio.get_running_loop()

    def hang(*_: object) -> None:
        loop.call_soon_threadsafe(stuck.set)
        time.sleep(600)

    monkeypatch.setattr("frtop_probe.eyes.source._read", hang)
    begun = time.monotonic()
    dump = await stacks.dump(sleeper.pid, 10, reader)
    assert stuck.is_set()
    assert time.monotonic() - begun < 5
    assert dump.threads[0].frames[0].source == ""


def test_no_more_files_are_remembered_than_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("frtop_probe.eyes.source.MAX_FILES", 3)
    reader = SourceReader()
    for number in range(6):
        (tmp_path / f"{number}.py").write_text(str(number))
        assert read(reader, str(tmp_path / f"{number}.py"), 1) == str(number)
    assert reader.line(str(tmp_path / "0.py"), 1) == ""

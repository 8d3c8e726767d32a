"""Stack dumps by py-spy, and by replacements that are slow, refused, endless or malformed."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frtop_probe import wire
from frtop_probe.proc import processes, ptrace_refusal, tool_process
from frtop_probe.stacks import stacks
from frtop_probe.stacks.source_lines import SourceLines
from waiting import DEADLINE_S, wait_for, wait_for_async

Process = subprocess.Popen[bytes]


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[Process]:
    program = tmp_path / "train.py"
    program.write_text(
        "import threading, time\nprint(flush=True)\ntime.sleep(600)  # the culprit\n"
    )
    process = subprocess.Popen([sys.executable, str(program)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    running = psutil.Process(process.pid)
    wait_for(lambda: running.status() == psutil.STATUS_SLEEPING, "it sleeps")
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


FakePySpy = Callable[[str], Path]


@pytest.fixture
def fake_py_spy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakePySpy:
    """Replaces py-spy with a shell script."""

    def put(script: str) -> Path:
        path = tmp_path / "py-spy"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        monkeypatch.setattr(stacks, "find_py_spy", lambda: str(path))
        return path

    return put


async def test_a_stack_has_its_source(sleeper: Process) -> None:
    dump = await stacks.dump(sleeper.pid, 10, SourceLines())
    assert (dump.error, dump.help) == ("", "")
    (thread,) = dump.threads
    assert (thread.name, thread.tid) == ("MainThread", sleeper.pid)
    assert thread.frames[0].line == 3
    assert thread.frames[0].source == "time.sleep(600)  # the culprit"


async def test_a_child_inside_fork_does_not_have_its_parents_threads(
    fake_py_spy: FakePySpy, sleeper: Process
) -> None:
    # Recorded from a DataLoader worker that waited for the interpreter lock in `os.fork()`.
    frame = '{"name": "wait", "filename": "responder.py", "line": 114}'
    parents = f'"os_thread_id": {os.getpid()}, "thread_name": "frtop", "active": true'
    own = f'"os_thread_id": {sleeper.pid}, "thread_name": "MainThread", "active": false'
    rest = f'"thread_id": 1, "owns_gil": false, "frames": [{frame}]'
    fake_py_spy(f"echo '[{{{parents}, {rest}}}, {{{own}, {rest}}}]'")
    (thread,) = (await stacks.dump(sleeper.pid, 10)).threads
    assert (thread.name, thread.tid) == ("MainThread", sleeper.pid)


@pytest.mark.parametrize(("tids", "tasks", "left"), [
    ((7, 9), [9], [9]),
    ((9, 7), [7, 8, 9], [9, 7]),
    ((0, 7, 9), [9], [9]),  # Python 3.10 knows only the main thread's native id
    ((0, 9), [8, 9], [0, 9]),
    ((7, 9), [1], [7, 9]),
    ((0, 0), [9], [0, 0]),
    ((7, 9), [], [7, 9]),
    ((), [9], []),
])  # fmt: skip
def test_threads_unknown_to_the_kernel_are_dropped(
    tids: tuple[int, ...], tasks: list[int], left: list[int]
) -> None:
    threads = tuple(wire.ThreadStack(1, tid, "", False, False, ()) for tid in tids)
    assert [thread.tid for thread in stacks.drop_missing_threads(threads, tasks)] == left


async def test_an_ended_process_is_gone() -> None:
    child = subprocess.Popen(["true"])
    child.wait()
    assert (await stacks.dump(child.pid, 10)).error == "gone"


async def test_a_process_without_python_fails() -> None:
    child = subprocess.Popen(["sleep", "600"])
    try:
        dump = await stacks.dump(child.pid, 10)
    finally:
        child.kill()
        child.wait()
    assert dump.error == "failed"
    assert dump.help.startswith("py-spy: ")


async def test_a_missing_py_spy_is_reported(
    sleeper: Process, monkeypatch: pytest.MonkeyPatch
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
    assert stacks.find_py_spy() == str(beside)
    beside.unlink()
    assert stacks.find_py_spy() == str(elsewhere)


async def test_a_py_spy_past_its_deadline_is_killed(
    sleeper: Process, fake_py_spy: FakePySpy, tmp_path: Path
) -> None:
    fake_py_spy(f"echo $$ > {tmp_path}/pid; exec sleep 600")
    begin = time.monotonic()
    dump = await stacks.dump(sleeper.pid, 0.5)
    assert time.monotonic() - begin < DEADLINE_S
    assert dump.error == "deadline"
    pid = int((tmp_path / "pid").read_text())
    await wait_for_async(lambda: processes.read_stat(pid) is None, "py-spy is gone")


@pytest.mark.parametrize(
    "error",
    ["Error: Permission Denied: Try running again", "Error: Operation not permitted (os error 1)"],
)
async def test_a_refusal_names_the_setting(
    sleeper: Process,
    fake_py_spy: FakePySpy,
    monkeypatch: pytest.MonkeyPatch,
    error: str,
) -> None:
    fake_py_spy(f"echo '{error}' >&2; exit 1")
    monkeypatch.setattr(ptrace_refusal, "explain", lambda pid: f"the setting of {pid}")
    dump = await stacks.dump(sleeper.pid, 10)
    assert (dump.error, dump.help) == ("refused", f"the setting of {sleeper.pid}")


@pytest.mark.parametrize(("script", "says"), [
    ("echo 'Error: Failed to find a python interpreter' >&2; echo Reason: x >&2; exit 1",
     "py-spy: Failed to find a python interpreter"),
    ("exec yes", None),  # endless output is cut off
    *((f"echo '{output}'", None) for output in ("", "[", "{}", '[{"pid": 1}]', "[1]")),
])  # fmt: skip
async def test_other_failures_and_malformed_output_are_reported(
    sleeper: Process, fake_py_spy: FakePySpy, monkeypatch: pytest.MonkeyPatch,
    script: str, says: str | None,
) -> None:  # fmt: skip
    monkeypatch.setattr(tool_process, "MAX_OUTPUT", 1_000_000)
    fake_py_spy(script)
    dump = await stacks.dump(sleeper.pid, DEADLINE_S)
    assert (dump.error, dump.help) == ("failed", says or dump.help)


async def test_a_py_spy_that_cannot_be_run_fails(sleeper: Process, fake_py_spy: FakePySpy) -> None:
    fake_py_spy("").write_bytes(b"\x7fELF nonsense")
    dump = await stacks.dump(sleeper.pid, 10)
    assert dump.error == "failed"


@given(st.binary(max_size=50))
def test_malformed_dumps_raise_decode_errors(data: bytes) -> None:
    try:
        stacks.parse_dump(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return


async def test_a_hung_file_system_delays_no_dump(
    sleeper: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = SourceLines()
    stuck = asyncio.Event()
    loop = asyncio.get_running_loop()

    def hang(*_: object) -> None:
        loop.call_soon_threadsafe(stuck.set)
        time.sleep(600)

    monkeypatch.setattr("frtop_probe.stacks.source_lines.read_source", hang)
    begin = time.monotonic()
    dump = await stacks.dump(sleeper.pid, 2 * DEADLINE_S, reader)
    assert stuck.is_set()
    assert time.monotonic() - begin < DEADLINE_S
    assert dump.threads[0].frames[0].source == ""


TORCH = "/opt/lib/python3.12/site-packages/torch/distributed/distributed_c10d.py"


def dump_with_locals(file: str, **variables: str | None) -> bytes:
    found = [{"name": name, "repr": text} for name, text in variables.items()]
    frame = {"name": "broadcast", "filename": file, "line": 9, "locals": found}
    thread = {"thread_id": 1, "active": True, "owns_gil": False, "frames": [frame]}
    return msgspec.json.encode([thread])


def variables_in(data: bytes, groups: dict[int, str] | None = None) -> dict[str, str]:
    ((thread,)) = stacks.parse_dump(data, groups=groups or {})
    return dict(thread.frames[0].variables)


@pytest.mark.parametrize("file", [
    TORCH, "/x/torch/distributed/c10d_logger.py",
])  # fmt: skip
def test_locals_of_torchs_own_frames_are_kept(file: str) -> None:
    assert variables_in(dump_with_locals(file, src="3", group="None")) == {
        "src": "3", "group": "None",
    }  # fmt: skip


@pytest.mark.parametrize("file", [
    "/home/ann/train.py", "/home/ann/distributed_c10d.py", "/x/torch/nn/modules/module.py",
    "/x/torch/distributed/fsdp/api.py", "/x/torch/distributed/distributed_c10d.py.orig", "",
])  # fmt: skip
def test_data_of_the_user_is_not(file: str) -> None:
    assert variables_in(dump_with_locals(file, password="hunter2")) == {}


def test_of_a_remote_call_only_names_of_workers_are_kept_with_a_recorder_or_without() -> None:
    file = "/x/torch/distributed/rpc/api.py"
    data = dump_with_locals(file, to='"worker2"', args='("hunter2",)', kwargs="None")
    known: tuple[dict[int, str] | None, ...] = ({}, None)
    for groups in known:
        ((thread,)) = stacks.parse_dump(data, groups=groups)
        assert dict(thread.frames[0].variables) == {"to": '"worker2"'}


@pytest.mark.parametrize(("text", "shown"), [
    ("<ProcessGroup at 0x7f10>", '"tp"'),
    ("<torch.distributed.ProcessGroup at 0x7f10>", '"tp"'),
    ("[<ProcessGroup at 0x7f10>, <ProcessGroup at 0x7f20>]", '["tp", "default_pg"]'),
    ("<ProcessGroup at 0x7f30>", "<ProcessGroup at 0x7f30>"),
    ("<OtherGroup at 0x7f10>", "<OtherGroup at 0x7f10>"),
])  # fmt: skip
def test_groups_are_shown_by_name(text: str, shown: str) -> None:
    data = dump_with_locals(TORCH, group=text)
    assert variables_in(data, {0x7F10: "tp", 0x7F20: "default_pg"}) == {"group": shown}


def test_locals_are_cut() -> None:
    many = {f"v{n}": "1" for n in range(100)}
    assert len(variables_in(dump_with_locals(TORCH, **many))) == stacks.MAX_VARIABLES
    long = variables_in(dump_with_locals(TORCH, ranks="9" * 5000, unread=None))
    assert {name: len(text) for name, text in long.items()} == {"ranks": stacks.MAX_NAME}


async def test_of_a_rank_with_a_recorder_no_variable_is_kept(
    fake_py_spy: FakePySpy, sleeper: Process, tmp_path: Path
) -> None:
    (tmp_path / "dump").write_bytes(dump_with_locals(TORCH, src="3"))
    fake_py_spy(f"cat {tmp_path}/dump")
    known = await stacks.dump(sleeper.pid, 10)
    unknown = await stacks.dump(sleeper.pid, 10, groups={})
    assert known.threads[0].frames[0].variables == ()
    assert unknown.threads[0].frames[0].variables == (("src", "3"),)

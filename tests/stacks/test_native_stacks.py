"""Native stacks of a real process, which runs on whatever becomes of the tool."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from frtop_probe.proc import processes, ptrace_refusal, tool_process, tracing
from frtop_probe.proc.tracing import Task
from frtop_probe.stacks import native_stacks
from frtop_probe.stacks.native_stacks import Tool
from stacks.debugged import BLOCKED_LINE, ENDS_WHILE_ATTACHING, HOLDS, Debugged, debugger
from waiting import DEADLINE_S, wait_for, wait_for_async

TAKES = """
import asyncio, sys
from frtop_probe.stacks import native_stacks
found = asyncio.run(native_stacks.take(int(sys.argv[1]), native_stacks.Tool(*sys.argv[2:])))
print(found.dump.error, found.stopped_ns, found.note, found.dump.help)
"""
BURNS = "while True: pass"
SLACK_NS = 1_000_000_000
"""What a loaded host may add to a pause of one millisecond, beside the wait for a processor."""


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tools take as long as the host needs; tests of the limits set their own."""
    monkeypatch.setattr(native_stacks, "MAX_STOP_S", DEADLINE_S)
    monkeypatch.setattr(native_stacks, "DEADLINE_S", DEADLINE_S)


@pytest.fixture
def target() -> Iterator[Debugged]:
    process = Debugged()
    yield process
    process.close()


@pytest.fixture(params=["py-spy", "pystack"])
def tool(request: pytest.FixtureRequest) -> Tool:
    path = tool_process.find(request.param)
    if path is None:
        pytest.skip(f"{request.param} is not installed")
    return Tool(request.param, path)


@contextmanager
def starved(pid: int, cpu: int) -> Iterator[None]:
    """The process may run on one CPU only, and there only when nobody else wants to."""
    everywhere = os.sched_getaffinity(pid)
    for tid in processes.thread_ids(pid):
        os.sched_setaffinity(tid, {cpu})
        os.sched_setscheduler(tid, os.SCHED_IDLE, os.sched_param(0))
    burners = [subprocess.Popen([sys.executable, "-c", BURNS]) for _ in range(6)]
    for burner in burners:
        os.sched_setaffinity(burner.pid, {cpu})
    try:
        yield
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()
        for tid in processes.thread_ids(pid):
            os.sched_setaffinity(tid, everywhere)


async def test_native_frames_are_marked_and_the_process_finishes(
    target: Debugged, tool: Tool
) -> None:
    found = await native_stacks.take(target.pid, tool)
    assert (found.dump.error, found.dump.help, found.note) == ("", "", "")
    main = found.dump.threads[0]
    assert (main.name, main.tid, main.active) == ("MainThread", target.pid, False)
    assert not main.frames[0].native or ".so" in main.frames[0].file
    (python,) = (frame for frame in main.frames if not frame.native)
    assert (python.function, python.file, python.line) == ("<module>", "<string>", BLOCKED_LINE)
    inner = main.frames[: main.frames.index(python)]
    assert any("read" in frame.function for frame in inner), inner
    assert all(frame.native and frame.file and not frame.line for frame in inner)
    functions = {frame.function for thread in found.dump.threads for frame in thread.frames}
    assert "keep_time" in functions
    assert target.runs()
    longest = target.finish()
    assert found.stopped_ns <= native_stacks.MAX_STOP_S * 1e9
    assert longest <= found.stopped_ns + SLACK_NS, "what is reported is an upper bound"


async def test_a_tool_killed_while_it_holds_the_process_leaves_it_running(
    target: Debugged, tool: Tool
) -> None:
    while True:  # on a loaded host the tool may be done before anybody looks
        taking = asyncio.ensure_future(native_stacks.take(target.pid, tool))
        while not (tracers := target.tracers()) and not taking.done():
            await asyncio.sleep(0.001)
        for tracer in tracers:
            os.kill(tracer, signal.SIGKILL)
        found = await taking
        if found.dump.error:
            break
    assert found.dump.error == "failed"
    assert not target.tracers()
    assert target.runs()
    target.finish()


async def test_the_process_runs_on_when_the_agent_is_killed_and_the_tool_does_not_end(
    target: Debugged, tmp_path: Path
) -> None:
    """Nobody is left to end the tool: the kernel kills it with the agent."""
    tool = debugger(tmp_path, HOLDS)
    command = [sys.executable, "-c", TAKES, str(target.pid), tool.name, tool.path]
    agent = subprocess.Popen(command)
    try:
        (tracer,) = await wait_for_async(target.tracers, "it is attached")
    finally:
        agent.kill()
        agent.wait()
    try:
        await wait_for_async(lambda: not target.tracers(), "the kernel lets go of it")
    finally:
        with suppress(ProcessLookupError):
            os.kill(tracer, signal.SIGKILL)
    assert target.runs()
    assert target.finish() > 0


async def test_a_tool_that_holds_the_process_too_long_is_ended(
    target: Debugged, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native_stacks, "MAX_STOP_S", 0.3)
    found = await native_stacks.take(target.pid, debugger(tmp_path, HOLDS))
    assert found.dump.error == "deadline"
    assert "had stood still" in found.dump.help
    assert found.note == ""
    assert target.runs()
    longest = target.finish()
    assert found.stopped_ns >= 300_000_000
    assert longest <= found.stopped_ns + SLACK_NS


async def test_a_tool_that_attaches_to_nothing_is_ended(
    target: Debugged, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native_stacks, "DEADLINE_S", 0.3)
    found = await native_stacks.take(target.pid, debugger(tmp_path, "time.sleep(600)"))
    assert (found.dump.error, found.stopped_ns, found.note) == ("deadline", 0, "")
    assert target.finish() < SLACK_NS


async def test_a_stop_that_a_killed_tool_leaves_behind_is_ended(
    target: Debugged, tmp_path: Path
) -> None:
    """PTRACE_ATTACH sends a SIGSTOP; whether it outlives the tool is a race, so often."""
    tool = debugger(tmp_path, ENDS_WHILE_ATTACHING, "pystack")
    left_behind = 0
    for _ in range(60):
        found = await native_stacks.take(target.pid, tool)
        assert found.dump.error == "failed"
        assert target.runs(), found.note
        left_behind += "frtop resumed it" in found.note
        if left_behind == 3:
            break
    assert left_behind, "no stop was left behind"
    target.finish()


@pytest.mark.parametrize("name", ["py-spy", "pystack"])
async def test_a_stop_by_somebody_else_meanwhile_is_left(
    target: Debugged, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    tool = debugger(tmp_path, HOLDS, name)
    taking = asyncio.ensure_future(native_stacks.take(target.pid, tool))
    await wait_for_async(target.is_held, "the tool holds all threads")
    os.kill(target.pid, signal.SIGSTOP)
    monkeypatch.setattr(native_stacks, "MAX_STOP_S", 0)  # the tool is ended now
    found = await taking
    assert found.dump.error == "deadline"
    assert "stopped by somebody else meanwhile, and stays so" in found.note
    wait_for(lambda: target.states() == "T", "it is stopped")
    os.kill(target.pid, signal.SIGCONT)
    target.finish()


@pytest.mark.long
async def test_a_stop_by_somebody_else_is_told_when_the_process_gets_no_cpu_to_stop(
    target: Debugged, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread that its tool has let go of runs for a moment before it stops."""
    taking = asyncio.ensure_future(native_stacks.take(target.pid, debugger(tmp_path, HOLDS)))
    await wait_for_async(target.is_held, "the tool holds all threads")
    cpu = min(os.sched_getaffinity(0))
    with starved(target.pid, cpu):
        os.kill(target.pid, signal.SIGSTOP)
        monkeypatch.setattr(native_stacks, "MAX_STOP_S", 0)  # the tool is ended now
        found = await taking
    assert "stopped by somebody else meanwhile, and stays so" in found.note
    wait_for(lambda: target.states() == "T", "it is stopped")
    os.kill(target.pid, signal.SIGCONT)
    target.finish()


async def test_a_stopped_process_is_left_alone(target: Debugged, tmp_path: Path) -> None:
    os.kill(target.pid, signal.SIGSTOP)
    wait_for(lambda: target.states() == "T", "it is stopped")
    found = await native_stacks.take(target.pid, debugger(tmp_path, f"open('{tmp_path}/ran', 'w')"))
    assert (found.dump.error, found.tool, found.stopped_ns) == ("stopped", "", 0)
    assert f"kill -CONT {target.pid}" in found.dump.help
    assert not (tmp_path / "ran").exists()
    assert target.states() == "T"
    os.kill(target.pid, signal.SIGCONT)
    target.finish()


async def test_a_process_that_a_debugger_traces_is_left_alone(
    target: Debugged, tmp_path: Path, tool: Tool
) -> None:
    other = subprocess.Popen([debugger(tmp_path, HOLDS).path, str(target.pid)])
    try:
        wait_for(lambda: target.tracers() == {other.pid}, "it is traced")
        found = await native_stacks.take(target.pid, tool)
        assert found.dump.error == "stopped"
        assert f"process {other.pid} (a debugger?)" in found.dump.help
    finally:
        other.kill()
        other.wait()
    target.finish()


async def test_a_thread_that_cannot_be_interrupted_keeps_the_tool_off(
    target: Debugged, monkeypatch: pytest.MonkeyPatch, tool: Tool
) -> None:
    # A real one needs a device or a file system that hangs.
    deaf = Task(target.pid + 3, "D", 0, own_stop=False, common_stop=False)
    monkeypatch.setattr(tracing, "read_tasks", lambda _: (deaf,))
    found = await native_stacks.take(target.pid, tool)
    assert (found.dump.error, found.tool) == ("uninterruptible", "")
    assert f"thread {deaf.tid}" in found.dump.help


async def test_an_agent_that_ends_leaves_the_process_running(
    target: Debugged, tmp_path: Path
) -> None:
    taking = asyncio.ensure_future(native_stacks.take(target.pid, debugger(tmp_path, HOLDS)))
    await wait_for_async(target.tracers, "the tool is attached")
    taking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await taking
    assert not target.tracers()
    assert target.runs()
    target.finish()


async def test_an_ended_process_has_none(tool: Tool) -> None:
    child = subprocess.Popen(["true"])
    wait_for(lambda: tracing.read_main(child.pid) is None, "it has ended")
    assert (await native_stacks.take(child.pid, tool)).dump.error == "gone"
    child.wait()
    assert (await native_stacks.take(child.pid, tool)).dump.error == "gone"


async def test_without_a_tool_it_says_what_to_install(
    target: Debugged, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tool_process, "find", lambda _: None)
    found = await native_stacks.take(target.pid)
    assert found.dump.error == "missing"
    assert "pip install py-spy" in found.dump.help


async def test_a_tool_that_cannot_be_run_fails(target: Debugged, tmp_path: Path) -> None:
    found = await native_stacks.take(target.pid, Tool("pystack", str(tmp_path / "none")))
    assert (found.dump.error, found.tool) == ("failed", "")


WITHOUT_RIGHT = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(24, 19, 0, 0, 0)  # PR_CAPBSET_DROP, CAP_SYS_PTRACE: matters to root
os.execv(sys.executable, [sys.executable, "-c", sys.argv[1], *sys.argv[2:]])
"""


def test_without_the_right_to_trace_nothing_is_held(tool: Tool) -> None:
    target = Debugged("private")
    try:
        command = (WITHOUT_RIGHT, TAKES, str(target.pid), tool.name, tool.path)
        said = subprocess.run(
            [sys.executable, "-c", *command], capture_output=True, text=True, timeout=30, check=True
        ).stdout
        assert said.startswith("refused 0 "), said
        assert "trac" in said
        target.finish()
    finally:
        target.close()


@pytest.mark.parametrize("name", ["py-spy", "pystack"])
async def test_a_refusal_names_the_setting(
    target: Debugged, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(ptrace_refusal, "explain", lambda pid: f"the setting of {pid}")
    fake = debugger(tmp_path, "sys.exit('Engine error: Operation not permitted')")
    found = await native_stacks.take(target.pid, Tool(name, fake.path))
    assert (found.dump.error, found.dump.help) == ("refused", f"the setting of {target.pid}")


async def test_native_frames_with_lines_of_source_are_marked_too(
    target: Debugged, tmp_path: Path
) -> None:
    # As py-spy printed them for a build of CPython with debug symbols.
    native = {"name": "select_poll_poll", "filename": "selectmodule.c", "module": "/lib/select.so"}
    python = {"name": "wait", "filename": "responder.py", "module": None}
    frames = [{**frame, "line": 655, "locals": None} for frame in (native, python)]
    thread = {"thread_id": 1, "os_thread_id": target.pid, "active": True, "owns_gil": False}
    output = json.dumps([{**thread, "thread_name": "frtop", "frames": frames}])
    found = await native_stacks.take(target.pid, debugger(tmp_path, f"print({output!r})"))
    shown = [(f.function, f.file, f.line, f.native) for f in found.dump.threads[0].frames]
    assert shown == [
        ("select_poll_poll", "/lib/select.so", 0, True), ("wait", "responder.py", 655, False),
    ]  # fmt: skip


async def test_output_that_makes_no_sense_fails(target: Debugged, tmp_path: Path) -> None:
    fake = debugger(tmp_path, "print('what?')").path
    for name in ("py-spy", "pystack"):
        found = await native_stacks.take(target.pid, Tool(name, fake))
        assert found.dump.error == "failed"
        assert "cannot be parsed" in found.dump.help
    empty = debugger(tmp_path, "print('[]')").path
    found = await native_stacks.take(target.pid, Tool("py-spy", empty))
    assert "found no thread" in found.dump.help


def test_pystack_comes_first_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    there = {"py-spy": "/bin/py-spy"}
    monkeypatch.setattr(tool_process, "find", there.get)
    assert native_stacks.find_tool() == Tool("py-spy", "/bin/py-spy")
    there["pystack"] = "/bin/pystack"
    assert native_stacks.find_tool() == Tool("pystack", "/bin/pystack")


def test_a_script_whose_python_this_user_may_not_run_gives_way(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """pystack of root's Python, in a process that has given up root."""
    paths = {}
    for name, first in (("pystack", "#!/root/nowhere/python -s\n"), ("py-spy", "\x7fELF")):
        (tmp_path / name).write_text(first)
        paths[name] = str(tmp_path / name)
    monkeypatch.setattr(tool_process, "find", paths.get)
    assert native_stacks.find_tool() == Tool("py-spy", paths["py-spy"])
    (tmp_path / "pystack").write_text(f"#!{sys.executable}\n")
    assert native_stacks.find_tool() == Tool("pystack", paths["pystack"])

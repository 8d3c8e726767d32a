"""Takes stacks with frames of C and C++; the process stands still meanwhile.

py-spy shows the threads that Python knows. pystack, if installed, is quicker and shows all threads,
including the one that runs an op; docs/unprepared.md has the figures. Both are debuggers: frtop
uses them only when a person asks for it.
"""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import msgspec

from frtop_probe import wire
from frtop_probe.proc import processes, tool_process, tracing
from frtop_probe.stacks import pystack_output, stacks
from frtop_probe.stacks.cxx_names import short_name

MAX_STOP_S: Final = 5.0
"""The process may stand still for this long, in seconds; then frtop kills the tool."""
DEADLINE_S: Final = 10.0
"""Seconds for the whole run of the tool, which reads symbols before it attaches."""
_POLL_S: Final = 0.005
_RELEASE_S: Final = 2.0
_SETTLE_S: Final = 0.5
_D_LOOKS: Final = 5
"""Looks at threads in state D, 20 ms apart: by then, a page fault from a disk is over."""


_IN_A_CONTAINER: Final = (
    "process {0} is in a container (a pid namespace of its own): py-spy and pystack do not find its"
    " threads from here, so it was not stopped; ask within it: `--ssh NAME --via 'docker exec -i"
    " {{host}} sh'`"
)
"""The tools search by the thread ids that Python knows, which are those inside the container."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A program that takes native stacks."""

    name: str
    path: str

    @property
    def sends_stops(self) -> bool:
        """Whether it attaches with a SIGSTOP; py-spy 0.4.0 and later does not."""
        return self.name == "pystack"

    def command(self, pid: int) -> tuple[str, ...]:
        if self.name == "pystack":
            return (self.path, "remote", "--native-all", "--no-color", str(pid))
        return (self.path, "dump", "--native", "--json", "--pid", str(pid))


@dataclass(frozen=True, slots=True)
class NativeStacks:
    """The result, with the fields of `wire.NativeStacksResponse`."""

    dump: wire.StackDump
    tool: str = ""
    stopped_ns: int = 0
    note: str = ""


def find_tool() -> Tool | None:
    """The quickest installed tool: pystack, else py-spy."""
    for name in ("pystack", "py-spy"):
        path = tool_process.find(name)
        if path and _may_run(path):
            return Tool(name, path)
    return None


def _may_run(path: str) -> bool:
    """Whether this user may run a program, and its interpreter if it is a script."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - two bytes
            first = file.readline(512)
    except OSError:
        return True  # starting it will show what is wrong
    interpreter = first[2:].split()[:1] if first.startswith(b"#!") else []
    return all(os.access(one, os.X_OK) for one in interpreter)


async def take(pid: int, tool: Tool | None = None) -> NativeStacks:
    """Takes the native stacks of one process, or says why not.

    The process runs on afterwards, whatever happens to the tool. A process that is already stopped
    or traced is left alone.
    """
    refusal = await _why_not_attach(pid)
    if refusal is not None:
        return NativeStacks(refusal)
    tool = tool or find_tool()
    if tool is None:
        text = tool_process.why_missing("py-spy")
        return NativeStacks(wire.StackDump(pid, error="missing", help=text))
    running = {task.tid for task in tracing.read_tasks(pid) if task.state == "R"}
    try:
        # Do not kill a tool that sends stops: its SIGSTOP may outlive it.
        child = await tool_process.start(*tool.command(pid), dies_with_us=not tool.sends_stops)
    except OSError as error:
        text = f"{tool.path} cannot be run: {error.strerror}"
        return NativeStacks(wire.StackDump(pid, error="failed", help=text))
    # The process waits for the tool, so the tool must not run at the agent's low priority.
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, child.pid, os.getpriority(os.PRIO_PROCESS, pid))
    watch = _Watch(pid, child.pid)
    reading = asyncio.ensure_future(tool_process.read_outputs(child))
    note = ""
    try:
        overdue = await watch.until(reading)
        output, errors = (b"", b"") if overdue else reading.result()
    finally:
        killed = child.returncode is None
        if killed:
            watch.look_closely()  # the last look before the kill shows who sent a stop
        reading.cancel()
        await tool_process.end(child)
        # Shielded: the agent must not end and leave the process stopped.
        died = killed or (child.returncode or 0) < 0
        note = await asyncio.shield(_release(pid, watch, tool, died=died))
    if overdue:
        dump = wire.StackDump(pid, error="deadline", help=f"{tool.name} was ended: {overdue}")
    else:
        dump = _result(pid, tool, child.returncode, output, errors)
    held_ns = watch.at_most_ns if dump.threads else watch.stopped_ns
    return NativeStacks(_with_states(pid, dump, running), tool.name, held_ns, note)


async def _why_not_attach(pid: int) -> wire.StackDump | None:
    """Why a tool must not be attached to a process; None if it may."""
    main = tracing.read_main(pid)
    if main is None:
        return stacks.gone(pid)
    if processes.own_thread_ids(pid):
        return wire.StackDump(pid, error="failed", help=_IN_A_CONTAINER.format(pid))
    return await _why_held(pid)


async def _why_held(pid: int) -> wire.StackDump | None:
    """Why a process could not run on, or would hold up the tool; None if neither is so."""
    tasks = tracing.read_tasks(pid)
    if tracer := next((task.tracer for task in tasks if task.tracer), 0):
        text = f"process {tracer} (a debugger?) traces process {pid}: end it there, then ask again"
        return wire.StackDump(pid, error="stopped", help=text)
    if any(task.state in "Tt" for task in tasks):
        text = (
            f"process {pid} was stopped, and stays so: its stacks without native frames are "
            f"read without touching it; `kill -CONT {pid}` resumes it"
        )
        return wire.StackDump(pid, error="stopped", help=text)
    stuck = {task.tid for task in tasks if task.state == "D"}
    for _ in range(_D_LOOKS):
        if not stuck:
            return None
        await asyncio.sleep(0.02)
        stuck &= {task.tid for task in tracing.read_tasks(pid) if task.state == "D"}
    if not stuck:
        return None
    text = (
        f"thread {min(stuck)} of process {pid} waits in the kernel and cannot be interrupted "
        "(state D): a tool that stops the process would wait for it, too; look at its kernel "
        f"stack: `cat /proc/{pid}/task/{min(stuck)}/stack` as root"
    )
    return wire.StackDump(pid, error="uninterruptible", help=text)


@dataclass(slots=True)
class _Watch:
    """Measures from outside how long a process is traced; notices if anybody else stops it."""

    pid: int
    tool: int  # its pid
    stopped_ns: int = 0
    foreign: bool = False
    _last_ns: int = field(default_factory=time.monotonic_ns)
    _traced: bool = False
    _longest_ns: int = 0

    @property
    def at_most_ns(self) -> int:
        """The longest that the tool may have held it, including the time between two looks."""
        return self.stopped_ns or self._longest_ns

    async def until(self, done: asyncio.Future[tuple[bytes, bytes]]) -> str:
        """Returns "" once `done` is done, else which limit was reached."""
        begin = time.monotonic()
        while not done.done():
            await asyncio.wait((done,), timeout=_POLL_S)
            self.look()
            if self.stopped_ns > MAX_STOP_S * 1e9:
                return f"process {self.pid} had stood still for {MAX_STOP_S:.0f} s"
            if time.monotonic() - begin > DEADLINE_S:
                return f"it had not finished within {DEADLINE_S:.0f} s; try again"
        return ""

    def look(self) -> None:
        """Looks at the main thread; counts the time since the last look if either saw a tracer."""
        main = tracing.read_main(self.pid)
        now_ns = time.monotonic_ns()
        traced = main is not None and not main.runs
        if traced or self._traced:
            self.stopped_ns += now_ns - self._last_ns
        self._longest_ns = max(self._longest_ns, now_ns - self._last_ns)
        self._last_ns, self._traced = now_ns, traced
        self._note_foreign(() if main is None else (main,))

    def look_closely(self) -> None:
        """Looks at all threads."""
        self.look()
        self._note_foreign(tracing.read_tasks(self.pid))

    def _note_foreign(self, tasks: tuple[tracing.Task, ...]) -> None:
        """Notes a stop as another's if the tool lives: the tool's own appears only as it dies."""
        if tracing.stopped_by_others(tasks) and not tracing.is_ending(self.tool):
            self.foreign = True


async def _release(pid: int, watch: _Watch, tool: Tool, *, died: bool) -> str:
    """Waits until the process runs again; ends a stop that the tool left if it `died`."""
    left_stop = died and tool.sends_stops
    resumed = False
    begin = time.monotonic()
    while True:
        watch.look()
        tasks = tracing.read_tasks(pid)
        waited_s = time.monotonic() - begin
        # A thread in state R may have received a SIGSTOP, or soon will, and then stops.
        may_stop_s = _RELEASE_S if watch.foreign else _SETTLE_S if left_stop else 0.0
        settled = waited_s >= may_stop_s or all(task.state != "R" for task in tasks)
        if settled and all(task.runs and not (left_stop and task.own_stop) for task in tasks):
            return f"its tool left process {pid} stopped: frtop resumed it" if resumed else ""
        if (watch.foreign and settled) or waited_s > _RELEASE_S:
            break
        if left_stop and not watch.foreign:
            resumed = tracing.resume_ours(pid) or resumed
        await asyncio.sleep(_POLL_S)
    if tracer := next((task.tracer for task in tasks if task.tracer), 0):
        return f"process {tracer} holds process {pid} now: it runs on once {tracer} has ended"
    if watch.foreign or not tool.sends_stops:
        return f"process {pid} was stopped by somebody else meanwhile, and stays so"
    return f"process {pid} is stopped, and nothing shows by whom: `kill -CONT {pid}` resumes it"


def _result(
    pid: int, tool: Tool, status: int | None, output: bytes, errors: bytes
) -> wire.StackDump:
    if status != 0:
        text = errors.decode("utf-8", "replace")
        return stacks.failure(pid, text.replace("💀", ""), tool.name)
    try:
        if tool.name == "pystack":
            threads = pystack_output.parse(output.decode("utf-8", "replace"))
        else:
            threads = tuple(map(_with_libraries, stacks.parse_dump(output, pid)))
    except (msgspec.DecodeError, pystack_output.NotPystackError) as error:
        text = f"{tool.name}'s output cannot be parsed: {error}"
        return wire.StackDump(pid, error="failed", help=text)
    if not threads:
        text = f"{tool.name} found no thread in process {pid}: try again"
        return wire.StackDump(pid, error="failed", help=text)
    return wire.StackDump(pid, threads)


def _with_libraries(thread: wire.ThreadStack) -> wire.ThreadStack:
    """Marks py-spy's native frames: only these have a module, which is their library."""
    return msgspec.structs.replace(
        thread,
        frames=tuple(
            wire.TraceFrame(short_name(frame.function), frame.module, 0, native=True)
            if frame.module
            else frame
            for frame in thread.frames
        ),
    )


def _with_states(pid: int, dump: wire.StackDump, running: set[int]) -> wire.StackDump:
    """Threads in their states before the stop, main thread first, with Python's names."""
    threads = (
        msgspec.structs.replace(
            thread,
            active=thread.tid in running,
            name="MainThread" if thread.tid == pid else thread.name[: stacks.MAX_NAME],
        )
        for thread in dump.threads
    )
    ordered = tuple(sorted(threads, key=lambda thread: thread.tid != pid))
    return msgspec.structs.replace(dump, threads=ordered)

"""Call stacks of a Python process, taken by py-spy with a deadline.

py-spy never stops the target (`--nonblocking`): a torch process has hundreds of threads, and a slow
job must not be slowed further.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from typing import Final

import msgspec

from frtop_probe import wire
from frtop_probe.proc import child_process, processes, ptrace_refusal, tool_process
from frtop_probe.proc.process_root import ProcessRoot
from frtop_probe.proc.within import within
from frtop_probe.stacks import pyspy_output, thread_waits
from frtop_probe.stacks.source_lines import SourceLines

MAX_THREADS: Final = 512
MAX_FRAMES: Final = 256
MAX_NAME: Final = 200
MAX_VARIABLES: Final = 32
_OF_TORCH: Final = re.compile(r"/torch/distributed/(distributed_c10d|c10d_logger)\.py$")
_OF_RPC: Final = re.compile(r"/torch/distributed/rpc/api\.py$")
_RPC_NAMES: Final = frozenset({"to", "self_name"})
"""Variables with names of workers. A call's arguments are the user's data."""
_GROUP: Final = re.compile(r"<(?:[\w.]+\.)?ProcessGroup at 0x([0-9a-f]{1,16})>")
_REFUSED: Final = ("permission denied", "operation not permitted", "os error 1)", "os error 13)")
_GONE: Final = ("no such process", "os error 3)", "process not found")
_SOURCE_WAIT: Final = 0.2


def find_py_spy() -> str | None:
    """The path of py-spy; None if it is missing."""
    return tool_process.find("py-spy")


def parse_dump(
    data: bytes, pid: int = 0, groups: Mapping[int, str] | None = None
) -> tuple[wire.ThreadStack, ...]:
    """Parses the output of `py-spy dump --json`, the main thread first.

    It keeps only local variables that hold no user data: in frames of torch.distributed the roots,
    peers and groups, in frames of RPC the names of workers. `groups` has the names of process
    groups, by the address of their Python objects.

    Before Python 3.11, threads do not store their native ids, so a non-blocking dump has none (and
    marks all threads active); the main thread's is `pid`. py-spy lists the newest thread first, so
    the main thread moves to the front before the list is cut.

    Raises:
        msgspec.DecodeError: `data` is no such output.
    """
    found = sorted(
        pyspy_output.decode(data),
        key=lambda thread: (thread.os_thread_id != pid, thread.thread_name != "MainThread"),
    )
    return tuple(
        wire.ThreadStack(
            ident=thread.thread_id,
            tid=thread.os_thread_id or (pid if thread.thread_name == "MainThread" else 0),
            name=(thread.thread_name or "")[:MAX_NAME],
            active=thread.active,
            owns_gil=thread.owns_gil,
            frames=tuple(
                wire.TraceFrame(
                    function=frame.name,
                    file=frame.filename,
                    line=frame.line,
                    module=frame.module or "",
                    variables=_variables(frame, groups),
                )
                for frame in thread.frames[:MAX_FRAMES]
            ),
        )
        for thread in found[:MAX_THREADS]
    )


def _variables(
    frame: pyspy_output.CallFrame, groups: Mapping[int, str] | None
) -> tuple[tuple[str, str], ...]:
    if not frame.variables:
        return ()
    if _OF_RPC.search(frame.filename):
        return tuple(
            (one.name, one.repr[:MAX_NAME])
            for one in frame.variables
            if one.name in _RPC_NAMES and one.repr is not None
        )
    if groups is None or not _OF_TORCH.search(frame.filename):
        return ()
    return tuple(
        (one.name[:MAX_NAME], _GROUP.sub(lambda at: _named(at, groups), one.repr)[:MAX_NAME])
        for one in frame.variables[:MAX_VARIABLES]
        if one.repr is not None
    )


def _named(found: re.Match[str], groups: Mapping[int, str]) -> str:
    name = groups.get(int(found[1], 16))
    return found[0] if name is None else f'"{name}"'


def drop_missing_threads(
    threads: tuple[wire.ThreadStack, ...], tasks: Collection[int]
) -> tuple[wire.ThreadStack, ...]:
    """Drops threads that are not among `tasks`, the native thread ids that the kernel lists.

    A child inside `fork()` still lists its parent's threads with their stacks.
    """
    if not any(thread.tid in tasks for thread in threads):
        return threads  # the process has ended
    nameless = len(tasks) > 1  # threads without a native id may exist
    return tuple(t for t in threads if t.tid in tasks or (nameless and not t.tid))


def as_numbered_here(
    pid: int, threads: tuple[wire.ThreadStack, ...]
) -> tuple[wire.ThreadStack, ...]:
    """Gives threads of a process in another pid namespace their ids and states as seen from here.

    py-spy cannot find them by the ids that the process sees, and calls them all active.
    """
    ids = processes.own_thread_ids(pid)
    if not any(thread.tid in ids for thread in threads):
        return threads
    runs = {task.pid for task in processes.read_threads(pid) if task.state == "R"}
    found = []
    for thread in threads:
        tid = ids.get(thread.tid, pid if thread.tid == pid else -1) if thread.tid else 0
        active = thread.active and tid in runs if tid else thread.active
        found.append(msgspec.structs.replace(thread, tid=tid, active=active))
    return tuple(found)


async def dump(
    pid: int,
    seconds: float,
    source: SourceLines | None = None,
    groups: Mapping[int, str] | None = None,
) -> wire.StackDump:
    """Dumps the stacks of one process; if there are none, the result says why.

    With `groups` (see `parse_dump`) it has local variables of torch's own frames; with `source`, it
    has source lines and which threads wait for which (`thread_waits`).
    """
    if processes.read_stat(pid) is None:
        return gone(pid)
    spy = find_py_spy()
    if spy is None:
        return wire.StackDump(
            pid,
            error="missing",
            help=tool_process.why_missing("py-spy"),
        )
    try:
        child = await tool_process.start(
            spy, "dump", "--json", "--nonblocking", "--locals", "--pid", str(pid),
            dies_with_us=child_process.AS_USER in os.environ,  # that user could stop the tool
        )  # fmt: skip
    except OSError as error:
        return wire.StackDump(pid, error="failed", help=f"{spy} cannot be run: {error.strerror}")
    try:
        output, errors = await within(seconds, tool_process.read_outputs(child))
    except TimeoutError:
        return wire.StackDump(
            pid,
            error="deadline",
            help=f"py-spy did not finish with process {pid} in the {seconds:.1f} s left for it: "
            "the host is overloaded, or a file system hangs; try again",
        )
    finally:
        await tool_process.end(child)
    result = _result(pid, child.returncode, output, errors, groups)
    if source is not None and result.threads:
        threads = await _with_source(pid, result.threads, source)
        return wire.StackDump(pid, _with_waits(pid, threads, output, source))
    return result


def _result(
    pid: int, status: int | None, output: bytes, errors: bytes, groups: Mapping[int, str] | None
) -> wire.StackDump:
    if status != 0:
        return failure(pid, errors.decode("utf-8", "replace"))
    try:
        threads = parse_dump(output, pid, groups)
    except msgspec.DecodeError as error:
        return wire.StackDump(
            pid, error="failed", help=f"py-spy's output cannot be parsed: {error}"
        )
    threads = as_numbered_here(pid, threads)
    return wire.StackDump(pid, drop_missing_threads(threads, processes.thread_ids(pid)))


def _with_waits(
    pid: int, threads: tuple[wire.ThreadStack, ...], output: bytes, source: SourceLines
) -> tuple[wire.ThreadStack, ...]:
    """Adds to the threads what they wait for; `output` is the dump that they come from."""
    root = ProcessRoot.of(pid)
    known = {thread.ident for thread in threads}
    steps = {
        thread.thread_id: [
            thread_waits.AtFrame.of(frame.filename, frame.name, frame.line, [
                (one.name, one.repr or "") for one in frame.variables or ()
            ])
            for frame in thread.frames[:MAX_FRAMES]
        ]
        for thread in pyspy_output.decode(output)
        if thread.thread_id in known
    }  # fmt: skip
    waits = thread_waits.waits_of(steps, lambda file, line: source.blocks(file, line, root))
    return tuple(
        msgspec.structs.replace(thread, wait=waits[thread.ident])
        if thread.ident in waits and not thread.owns_gil
        else thread
        for thread in threads
    )


def gone(pid: int) -> wire.StackDump:
    return wire.StackDump(pid, error="gone", help=f"process {pid} has ended and has no stacks")


def failure(pid: int, errors: str, tool: str = "py-spy") -> wire.StackDump:
    """Translates a tool's standard error into a message for the user."""
    text = errors.lower()
    found = processes.read_stat(pid)
    if found is None or found.state in "ZX" or any(word in text for word in _GONE):
        return gone(pid)
    if any(word in text for word in _REFUSED):
        return wire.StackDump(pid, error="refused", help=ptrace_refusal.explain(pid))
    line = next((line.strip() for line in errors.splitlines() if line.strip()), "no reason")
    reason = line.removeprefix("Error: ")[:300]
    return wire.StackDump(pid, error="failed", help=f"{tool}: {reason}")


async def _with_source(
    pid: int, threads: tuple[wire.ThreadStack, ...], source: SourceLines
) -> tuple[wire.ThreadStack, ...]:
    files = {frame.file for thread in threads for frame in thread.frames if frame.file[:1] == "/"}
    root = ProcessRoot.of(pid)
    await source.read(files, _SOURCE_WAIT, root)
    return tuple(
        msgspec.structs.replace(
            thread,
            frames=tuple(
                msgspec.structs.replace(frame, source=source.line(frame.file, frame.line, root))
                for frame in thread.frames
            ),
        )
        for thread in threads
    )

"""Stacks that others took: `py-spy dump --json`, one file per rank, and nothing else.

They only show what a rank does: ops have no numbers, groups no names. The file's time says when.
With `--locals`, they also show peers and sizes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from frtop_probe import wire
from frtop_probe.proc import daemon_thread
from frtop_probe.proc.process_root import ProcessRoot, SourceFile, read_source
from frtop_probe.ring.rank_ranges import MAX_RANKS
from frtop_probe.stacks import pyspy_output
from frtop_probe.wire.values import LARGEST
from frtop_tui.diagnosis.engine import Engine
from frtop_tui.diagnosis.model import Frame
from frtop_tui.errors import Unreadable
from frtop_tui.files.bounded_read import read_bounded, read_head
from frtop_tui.job.model import (
    STACKS,
    Coverage,
    CoverageNote,
    ObservedFrame,
    ObservedRank,
    Recorded,
)
from frtop_tui.job.naming import folded, printable

SUFFIX: Final = ".pyspy.json"
KIND: Final = "stacks taken by py-spy"
OVER: Final = "these are stacks from files: there is no job to ask"
MAX_SIZE: Final = 16 * 1024 * 1024
MAX_THREADS: Final = 512
MAX_FRAMES: Final = 256
NATIVE_FOR_ONE: Final = 8
"""A stack with C frames may have eight times as many."""
MAX_VARIABLES: Final = 64
MAX_TEXT: Final = 400
MAX_DIGITS: Final = 8
MAX_SOURCES: Final = 64
MAX_LINE: Final = 200
SOURCES_S: Final = 1.0
"""Seconds to read all source files; frtop ignores those that take longer."""
MAIN: Final = "MainThread"
_LIBRARY: Final = re.compile(r"\.so(\.[\d.]+)?$")
_HEAD: Final = 4096
_NEXT: Final = "take it again: py-spy dump --json --nonblocking --pid PID > rank_N.pyspy.json"

Taken = tuple[str, tuple[wire.ThreadStack, ...], int]
"""Host, threads, and when the file was written (ns, wall clock)."""


def is_pyspy(path: Path) -> bool:
    """Whether a file has a usual name for these, or begins like one.

    Raises:
        OSError: it cannot be read.
    """
    if path.name.endswith(SUFFIX):
        return True
    head = read_head(path, _HEAD)
    begin = head.lstrip()[:1] == b"["
    return begin and b'"thread_id"' in head and b'"pid"' in head


def stacks_of(path: Path) -> tuple[wire.ThreadStack, ...]:
    """The threads of a process in a file; with `--native`, they also have C frames.

    Raises:
        Unreadable: The file cannot be read, is too large, damaged, or something else.
    """
    try:
        threads = pyspy_output.decode(_bytes(path))
    except (msgspec.DecodeError, RecursionError) as error:
        text = f"{path} is damaged, or not a dump of py-spy ({str(error)[:120]})"
        raise Unreadable(text, _NEXT) from error
    if not any(thread.frames for thread in threads):
        raise Unreadable(f"{path} has no thread that runs Python", _NEXT)
    return threads_of(threads)


def threads_of(threads: Sequence[pyspy_output.Thread]) -> tuple[wire.ThreadStack, ...]:
    """The threads of a process, within limits."""
    # Before Python 3.11, a dump that did not stop the process has no native ids and calls all
    # threads active: then only the one with the GIL certainly runs.
    blind = all(thread.os_thread_id is None for thread in threads)
    return tuple(_stack(thread, blind=blind) for thread in threads[:MAX_THREADS])


def _stack(thread: pyspy_output.Thread, *, blind: bool) -> wire.ThreadStack:
    # py-spy loses names if the dict of threads changes while it reads; it never loses ids.
    is_main = thread.thread_name == MAIN or thread.os_thread_id == thread.pid != 0
    name = MAIN if is_main else (thread.thread_name or "")[:MAX_TEXT]
    tid = thread.os_thread_id or (thread.pid if is_main else 0)
    active = thread.owns_gil if blind else thread.active
    ident = thread.thread_id & (LARGEST - 1)
    frames = tuple(map(_frame, _within_limits(thread.frames)))
    return wire.ThreadStack(ident, tid, name, active, thread.owns_gil, frames)


def _is_native(frame: pyspy_output.CallFrame) -> bool:
    """Whether it is a C or C++ frame: only these have a module, which is their library."""
    return bool(frame.module) or _LIBRARY.search(frame.filename) is not None


def _within_limits(frames: Sequence[pyspy_output.CallFrame]) -> Sequence[pyspy_output.CallFrame]:
    """The innermost frames; C frames do not displace Python frames."""
    if not any(map(_is_native, frames)):
        return frames[:MAX_FRAMES]
    return frames[: NATIVE_FOR_ONE * MAX_FRAMES]


def _frame(frame: pyspy_output.CallFrame) -> wire.TraceFrame:
    if _is_native(frame):
        library = frame.module or frame.filename
        return wire.TraceFrame(frame.name[:MAX_TEXT], library[:MAX_TEXT], 0, native=True)
    return wire.TraceFrame(
        function=frame.name[:MAX_TEXT],
        file=frame.filename[:MAX_TEXT],
        line=frame.line,
        variables=tuple(
            (variable.name[:MAX_TEXT], (variable.repr or "")[:MAX_TEXT])
            for variable in (frame.variables or ())[:MAX_VARIABLES]
        ),
    )


def _bytes(path: Path) -> bytes:
    data = read_bounded(path, lambda _: MAX_SIZE, "a dump of py-spy", _NEXT)
    if not data.strip():
        raise Unreadable(f"{path} is empty: py-spy could not look at that process", _NEXT)
    return data


def frame_of(
    folder: Path,
    ranks: Mapping[int, Taken],
    notes: Sequence[str] = (),
    earlier: Mapping[int, Taken] | None = None,
) -> Frame:
    """Judges the job of these stacks; compares them with `earlier` ones of the same ranks.

    Ranks without a file are unreachable, and may be the ones to blame.
    """
    taken = {rank: ranks[rank] for rank in ranks if 0 <= rank < MAX_RANKS}
    known = _with_texts({rank: _of_python(one) for rank, one in taken.items()})
    world = max([*(rank + 1 for rank in known), *map(_world_size, known.values())], default=0)
    job = wire.Job("", 0, world, name=printable(folder.name or str(folder)))
    before = {rank: _of_python(one) for rank, one in (earlier or {}).items()}
    views = {
        rank: _with_native(_view(rank, job, known[rank], before.get(rank)), taken[rank])
        for rank in sorted(known)
    }
    now = max((taken[2] for taken in known.values()), default=0)
    frame = ObservedFrame(
        now_ns=now,
        wall_ns=now,
        health="undecided",
        job=job,
        ranks=views,
        coverage=_coverage(world, views),
        recorded=Recorded(KIND, str(folder), now, notes=tuple(notes)),
        read_only=OVER,
    )
    return Engine(explain=True).judge(frame).frame


def split(found: Iterable[tuple[int, Taken]]) -> tuple[dict[int, Taken], dict[int, Taken]]:
    """The newest stacks of each rank, and the oldest of each rank that has several.

    For `frame_of`: `ranks, earlier = split(...)`.
    """
    newest: dict[int, Taken] = {}
    oldest: dict[int, Taken] = {}
    for rank, taken in found:
        if rank not in newest or taken[2] >= newest[rank][2]:
            newest[rank] = taken
        if rank not in oldest or taken[2] < oldest[rank][2]:
            oldest[rank] = taken
    return newest, {rank: taken for rank, taken in oldest.items() if taken is not newest[rank]}


def _with_texts(ranks: Mapping[int, Taken]) -> dict[int, Taken]:
    """Adds the text of the innermost lines, if this machine has the program, too.

    A C call has no frame: only its line shows whether `train.py:33` sleeps, reads or waits for an
    op. A thread reads the files, and gets 1 s: the file system may be the one that hangs.
    """
    stacks = (thread for _, threads, _ in ranks.values() for thread in threads)
    names = dict.fromkeys(stack.frames[0].file for stack in stacks if stack.frames)
    wanted = [name for name in names if name.startswith("/") and name.endswith(".py")]
    read: dict[str, SourceFile] = {}

    def read_all() -> None:
        for name in wanted[:MAX_SOURCES]:
            read[name] = read_source(ProcessRoot(), name)

    daemon_thread.start(read_all, "frtop source lines").join(SOURCES_S)
    files = dict(read)
    return {
        rank: (host, tuple(_with_text(thread, files, written) for thread in threads), written)
        for rank, (host, threads, written) in ranks.items()
    }


def _with_text(
    stack: wire.ThreadStack, files: Mapping[str, SourceFile], taken_ns: int
) -> wire.ThreadStack:
    """Adds the text of the innermost line, if the file is older than the stack."""
    leaf = stack.frames[0] if stack.frames else None
    file = files.get(leaf.file) if leaf is not None else None
    if leaf is None or file is None or file.changed_ns > taken_ns:
        return stack
    if not 0 < leaf.line <= len(file.lines):
        return stack
    source = file.lines[leaf.line - 1].strip()[:MAX_LINE]
    leaf = msgspec.structs.replace(leaf, source=source)
    return msgspec.structs.replace(stack, frames=(leaf, *stack.frames[1:]))


def _of_python(taken: Taken) -> Taken:
    """The stacks without C frames: with them, the same call appears at other frames."""
    host, threads, written = taken
    return host, tuple(map(_python_frames, threads)), written


def _python_frames(thread: wire.ThreadStack) -> wire.ThreadStack:
    if not any(frame.native for frame in thread.frames):
        return thread
    frames = tuple(frame for frame in thread.frames if not frame.native)
    return msgspec.structs.replace(thread, frames=frames)


def _with_native(view: ObservedRank, taken: Taken) -> ObservedRank:
    """Adds the rank's C frames, if its file has any, as native stacks."""
    host, threads, written = taken
    if not any(frame.native for thread in threads for frame in thread.frames):
        return view
    dump = wire.StackDump(view.identity.pid, threads)
    native = wire.NativeStacksResponse(0, host, view.key, written, dump=dump)
    return msgspec.structs.replace(view, native=native)


def _world_size(taken: Taken) -> int:
    """The number of ranks, from arguments of torch's functions; 0 if unknown."""
    frames = [frame for thread in taken[1] for frame in thread.frames]
    sizes = [
        int(value)
        for frame in frames
        if frame.file.endswith("torch/distributed/distributed_c10d.py")
        for name, value in frame.variables
        if name == "world_size" and value.isdecimal() and len(value) < MAX_DIGITS
    ]
    return min(max(sizes, default=0), MAX_RANKS)


def _view(rank: int, job: wire.Job, taken: Taken, before: Taken | None) -> ObservedRank:
    host, threads, written = taken
    main = next((t for t in threads if t.name == MAIN), threads[0] if threads else None)
    pid = main.tid if main is not None else 0
    ident = main.ident if main is not None else 0
    return ObservedRank(
        rank=rank,
        host=host,
        key=rank + 1,
        identity=wire.Identity(pid, 0, rank, -1, job, main_ident=ident),
        state="moving",
        state_since_ns=written,
        reported_ns=written,
        clock_ns=0,
        evidence=STACKS,
        snapshot=_look(rank, pid, threads, written),
        prior_snapshot=_look(rank, pid, before[1], before[2]) if before is not None else None,
        stacks_taken_ns=written,
    )


def _look(rank: int, pid: int, threads: tuple[wire.ThreadStack, ...], at: int) -> wire.Snapshot:
    return wire.Snapshot(rank + 1, at, dumps=(wire.StackDump(pid, threads),))


def _coverage(world: int, views: Mapping[int, ObservedRank]) -> Coverage:
    missing = tuple(rank for rank in range(world) if rank not in views)
    text = "no stack shows how many ranks there are: frtop does not miss those above the last one"
    notes = [CoverageNote(text)]
    if missing:
        text = (
            f"no stacks from {folded(missing)}: take those, too; a rank that could not be dumped"
            " may be the one to blame"
        )
        notes.insert(0, CoverageNote(text, "never reported"))
    return Coverage(world, len(views), missing, notes=tuple(notes))

"""Dumps of stacks that others took: `py-spy dump --json`, one file per rank, and nothing else.

What a rank does is all that they tell. Ops have no numbers there, groups no names; when it
was, the file's time tells. With `--locals` they also tell peers and sizes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final

import msgspec

from frtop_probe import wire
from frtop_probe.ring.rank_ranges import MAX_RANKS
from frtop_tui.diagnosis.engine import Engine
from frtop_tui.diagnosis.model import Frame
from frtop_tui.errors import Unreadable
from frtop_tui.files.bounded_read import read_bounded, read_head
from frtop_tui.files.source_lines import texts_of, with_text
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
OVER: Final = "these are stacks that were written to files: there is nobody to ask"
MAX_SIZE: Final = 16 * 1024 * 1024
MAX_THREADS: Final = 512
MAX_FRAMES: Final = 256
NATIVE_FOR_ONE: Final = 8
"""So many times the frames, where those of C are among them."""
MAX_VARIABLES: Final = 64
MAX_TEXT: Final = 400
MAX_DIGITS: Final = 8
MAIN: Final = "MainThread"
_LIBRARY: Final = re.compile(r"\.so(\.[\d.]+)?$")
_HEAD: Final = 4096
_NEXT: Final = "take it again: py-spy dump --json --nonblocking --pid PID > rank_N.pyspy.json"

Taken = tuple[str, tuple[wire.ThreadStack, ...], int]
"""Host, threads, and when the file was written (ns, wall clock)."""
_Number = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class _Variable(msgspec.Struct):
    name: str
    repr: str | None = None


class _Frame(msgspec.Struct):
    name: str
    filename: str = ""
    line: _Number = 0
    module: str | None = None
    variables: list[_Variable] | None = msgspec.field(default=None, name="locals")


class _Thread(msgspec.Struct):
    thread_id: int
    active: bool
    owns_gil: bool
    frames: list[_Frame]
    pid: _Number = 0
    thread_name: str | None = None
    os_thread_id: _Number | None = None


_threads = msgspec.json.Decoder(list[_Thread])


def is_pyspy(path: Path) -> bool:
    """Whether a file is called as these are, or begins as they do.

    Raises:
        OSError: it cannot be read.
    """
    if path.name.endswith(SUFFIX):
        return True
    head = read_head(path, _HEAD)
    begin = head.lstrip()[:1] == b"["
    return begin and b'"thread_id"' in head and b'"pid"' in head


def stacks_of(path: Path) -> tuple[wire.ThreadStack, ...]:
    """The threads of a process, as its file tells them; with `--native`, frames of C, too.

    Raises:
        Unreadable: it cannot be read, is too large, damaged, or something else.
    """
    try:
        threads = _threads.decode(_bytes(path))
    except (msgspec.DecodeError, RecursionError) as error:
        text = f"{path} is damaged, or no dump of py-spy ({str(error)[:120]})"
        raise Unreadable(text, _NEXT) from error
    if not any(thread.frames for thread in threads):
        raise Unreadable(f"{path} tells of no thread that runs Python", _NEXT)
    # Before Python 3.11 threads do not know their native ids, if they are not stopped for it,
    # and all are called active: then only who has the GIL surely runs.
    blind = all(thread.os_thread_id is None for thread in threads)
    return tuple(_stack(thread, blind=blind) for thread in threads[:MAX_THREADS])


def _stack(thread: _Thread, *, blind: bool) -> wire.ThreadStack:
    # A name is lost when the dict of threads changes under the eyes of who looks; ids are not.
    is_main = thread.thread_name == MAIN or thread.os_thread_id == thread.pid != 0
    name = MAIN if is_main else (thread.thread_name or "")[:MAX_TEXT]
    tid = thread.os_thread_id or (thread.pid if is_main else 0)
    active = thread.owns_gil if blind else thread.active
    ident = thread.thread_id & (2**64 - 1)
    frames = tuple(map(_frame, _within_limits(thread.frames)))
    return wire.ThreadStack(ident, tid, name, active, thread.owns_gil, frames)


def _is_native(frame: _Frame) -> bool:
    """Whether it is a frame of C or C++: only these have a module, which is their library."""
    return bool(frame.module) or _LIBRARY.search(frame.filename) is not None


def _within_limits(frames: Sequence[_Frame]) -> Sequence[_Frame]:
    """The innermost frames; frames of C do not push those of Python out."""
    if not any(map(_is_native, frames)):
        return frames[:MAX_FRAMES]
    return frames[: NATIVE_FOR_ONE * MAX_FRAMES]


def _frame(frame: _Frame) -> wire.TraceFrame:
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
    """The job that these stacks tell of, judged; `earlier` ones of the same ranks compared.

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
    """The newest stacks of each rank, and of those that were taken more than once the oldest.

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
    """With the text of the innermost lines, as far as it can be had here."""
    texts = texts_of(thread for _, threads, _ in ranks.values() for thread in threads)
    return {
        rank: (host, tuple(with_text(thread, texts, written) for thread in threads), written)
        for rank, (host, threads, written) in ranks.items()
    }


def _of_python(taken: Taken) -> Taken:
    """Without frames of C: with them a stack shows the same call, at other frames."""
    host, threads, written = taken
    return host, tuple(map(_python_frames, threads)), written


def _python_frames(thread: wire.ThreadStack) -> wire.ThreadStack:
    if not any(frame.native for frame in thread.frames):
        return thread
    frames = tuple(frame for frame in thread.frames if not frame.native)
    return msgspec.structs.replace(thread, frames=frames)


def _with_native(view: ObservedRank, taken: Taken) -> ObservedRank:
    """The rank with its frames of C, if its file has any, where native stacks are shown."""
    host, threads, written = taken
    if not any(frame.native for thread in threads for frame in thread.frames):
        return view
    dump = wire.StackDump(view.identity.pid, threads)
    native = wire.NativeStacksResponse(0, host, view.key, written, dump=dump)
    return msgspec.structs.replace(view, native=native)


def _world_size(taken: Taken) -> int:
    """How many ranks there are, by what functions of torch were given; 0 if unknown."""
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
    text = "how many ranks there are is in no stack: those above the last one are not missed"
    notes = [CoverageNote(text)]
    if missing:
        text = (
            f"no stacks of {folded(missing)}: take those, too; a rank that could not be dumped"
            " may be the one to blame"
        )
        notes.insert(0, CoverageNote(text, "never reported"))
    return Coverage(world, len(views), missing, notes=tuple(notes))

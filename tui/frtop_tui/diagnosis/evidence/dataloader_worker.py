"""The DataLoader worker that a rank waits for, and what it is doing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice
from typing import Final

from msgspec import Struct, structs

from frtop_probe import wire
from frtop_tui.diagnosis.evidence.rank_activity import current_fetch
from frtop_tui.diagnosis.evidence.stack_location import (
    FILE_KINDS,
    StackLocation,
    function_name,
    locate,
)
from frtop_tui.job.model import Rank
from frtop_tui.job.stack_frames import is_user_code

_LOADER: Final = re.compile(r"(?:^|/)torch/utils/data/")
_LOOP: Final = re.compile(r"/_utils/worker\.py$")
_QUEUE: Final = re.compile(r"(?:^|/)(?:multiprocess(?:ing)?/(?:queues|connection)|selectors)\.py$")
_FORK: Final = re.compile(r"(?:^|/)multiprocess(?:ing)?/popen_fork\.py$")
_NAME: Final = "pt_data_worker"
_OUTSIDE: Final = frozenset({"file_io", "file_lock", "socket", "pipe", "child"})
_WAITS: Final = frozenset({"lock", "sleeping", "socket", "pipe", "child"})


class WorkerStack(Struct, frozen=True):
    """What a worker's main thread is doing, by its stack."""

    is_forking: bool = False  # still inside the `os.fork()` that created it, or in a hook there
    awaits_index: bool = False  # waits for its rank
    location: StackLocation | None = None  # None while it is in `os.fork()` itself


def children_in_question(view: Rank) -> tuple[int, ...]:
    """The pid of the worker that a fetch waits for; else two children that may be stuck.

    These are at a file or stopped, else workers that wait: one without work polls its queue.
    """
    fetch = current_fetch(view)
    if fetch is not None and fetch.worker_pid:
        return (fetch.worker_pid,)
    places = {child: locate(None, child).kind for child in _children(view)}
    stuck = [one for one, kind in places.items() if kind in FILE_KINDS or one.state in "Tt"]
    waiting = (one for one, kind in places.items() if one.name == _NAME and kind in _WAITS)
    return tuple(child.pid for child in islice(stuck or waiting, 2))


def worker_of(view: Rank) -> wire.Process | None:
    """The worker that the rank waits for; None if several are in question."""
    pids = children_in_question(view)
    return next((child for child in _children(view) if pids == (child.pid,)), None)


def starter_of(view: Rank, process: wire.Process) -> wire.Process:
    """The rank's own child that a process stems from: itself, or a worker that started it."""
    by_pid = {one.pid: one for one in _children(view)}
    while (above := by_pid.pop(process.parent, None)) is not None:
        process = above
    return process


def _children(view: Rank) -> tuple[wire.Process, ...]:
    return view.snapshot.processes[1:] if view.snapshot is not None else ()


def worker_stack(view: Rank, worker: wire.Process) -> WorkerStack | None:
    """What the last snapshot shows of a worker; None if there is no stack."""
    stack = _main_stack(view, worker)
    if stack is None:
        return None
    own = _own_frames(stack.frames)
    is_forking = _is_forking(stack.frames, own)
    if not own:
        return WorkerStack(is_forking)
    loader = next((i for i, frame in enumerate(own) if _LOADER.search(frame.file)), 0)
    # All workers share the frames outside the loader.
    inner = own[:loader] or own
    gets = loader and function_name(inner[-1]) == "get"
    if gets and _LOOP.search(own[loader].file) and all(_QUEUE.search(f.file) for f in inner):
        return WorkerStack(is_forking, awaits_index=True)
    location = locate(structs.replace(stack, frames=tuple(inner)), worker)
    return WorkerStack(is_forking, location=location)


def loading_threads(view: Rank, worker: wire.Process) -> tuple[wire.ThreadStack, ...]:
    """A worker's other threads in program code, at a file or a connection.

    Its main thread may wait for what one of them loads.
    """
    main = _main_stack(view, worker)
    return tuple(
        one
        for one in _threads(view, worker)
        if one is not main
        and one.frames
        and (any(map(is_user_code, one.frames)) or locate(one).kind in _OUTSIDE)
    )


def _threads(view: Rank, worker: wire.Process) -> tuple[wire.ThreadStack, ...]:
    dumps = view.snapshot.dumps if view.snapshot is not None else ()
    return next((dump.threads for dump in dumps if dump.pid == worker.pid), ())


def _main_stack(view: Rank, worker: wire.Process) -> wire.ThreadStack | None:
    """The stack of the loading thread; the worker's other thread feeds its queue."""
    threads = _threads(view, worker)
    main = next((t for t in threads if t.tid == worker.pid), threads[0] if threads else None)
    return main if main is not None and main.frames else None


def _is_forking(frames: Sequence[wire.TraceFrame], own: Sequence[wire.TraceFrame]) -> bool:
    if len(own) == len(frames) or any(function_name(frame) == "_bootstrap" for frame in own):
        return False
    line = frames[len(own)].source
    return not line or "fork(" in line


def _own_frames(frames: Sequence[wire.TraceFrame]) -> Sequence[wire.TraceFrame]:
    """A forked worker's frames, without those inherited from its parent."""
    forks = (
        i for i, frame in enumerate(frames)
        if _FORK.search(frame.file) and function_name(frame) == "_launch"
    )  # fmt: skip
    return frames[: next(forks, len(frames))]

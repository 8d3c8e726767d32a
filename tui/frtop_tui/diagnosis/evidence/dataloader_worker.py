"""The DataLoader worker that a rank waits for, and what that worker does."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from msgspec import structs

from frtop_probe import wire
from frtop_tui.diagnosis.evidence import stack_location as places
from frtop_tui.job.model import Rank

_LOADER: Final = re.compile(r"(?:^|/)torch/utils/data/")
_LOOP: Final = re.compile(r"/_utils/worker\.py$")
_QUEUE: Final = re.compile(r"(?:^|/)(?:multiprocessing/(?:queues|connection)|selectors)\.py$")
_FORK: Final = re.compile(r"(?:^|/)multiprocessing/popen_fork\.py$")

AT_FORK: Final = (
    "a lock that another thread held at the fork stays locked in the worker: a library's, or the"
    " interpreter's own in CPython before 3.10.15, 3.11.10 and 3.12 (gh-112275); workers by"
    " forkserver or spawn avoid it"
)


def worker_of(view: Rank) -> wire.Process | None:
    """The worker that a fetch waits for, or else a child that is plainly stuck in a file."""
    fetch = view.status.fetch if view.status is not None else None
    children = view.snapshot.processes[1:] if view.snapshot is not None else ()
    if fetch is not None and fetch.worker_pid:
        return next((child for child in children if child.pid == fetch.worker_pid), None)
    stuck = [
        c for c in children if places.classify(None, c).kind in places.FILES or c.state in "Tt"
    ]
    return stuck[0] if len(stuck) == 1 else None


def stack_of(view: Rank, worker: wire.Process | None) -> wire.ThreadStack | None:
    """Its main thread in the last look: the one that loads. What feeds its queue is another."""
    if worker is None or view.snapshot is None:
        return None
    threads = next((dump.threads for dump in view.snapshot.dumps if dump.pid == worker.pid), ())
    main = next((t for t in threads if t.tid == worker.pid), threads[0] if threads else None)
    return main if main is not None and main.frames else None


def is_forking(stack: wire.ThreadStack) -> bool:
    """Whether a worker is still inside the `os.fork()` that made it, or a hook that runs there."""
    frames, own = stack.frames, _own(stack.frames)
    if len(own) == len(frames) or any(places.bare_name(f) == "_bootstrap" for f in own):
        return False
    line = frames[len(own)].source
    return not line or "fork(" in line


def doing(stack: wire.ThreadStack, worker: wire.Process) -> str:
    """`sleeping at data.py:31 (decode)`: by its own stack, "" if that tells nothing."""
    own = _own(stack.frames)
    if not is_forking(stack):
        return _told(stack, own, worker) if own else ""
    if own:
        return f"has not got past its fork: {_told(stack, own, worker)}"
    asleep = ", asleep on a lock" if places.is_asleep_on_lock(worker) else ""
    return f"has not got past its fork{asleep}"


def _own(frames: Sequence[wire.TraceFrame]) -> Sequence[wire.TraceFrame]:
    """A forked worker's frames, without those that its stack has from its parent."""
    forks = (
        i for i, f in enumerate(frames)
        if _FORK.search(f.file) and places.bare_name(f) == "_launch"
    )  # fmt: skip
    return frames[: next(forks, len(frames))]


def _told(stack: wire.ThreadStack, frames: Sequence[wire.TraceFrame], worker: wire.Process) -> str:
    loader = next((i for i, f in enumerate(frames) if _LOADER.search(f.file)), 0)
    # Everything from the loader on outward is what every worker has.
    inner = frames[:loader] or frames
    gets = loader and places.bare_name(inner[-1]) == "get"
    if gets and _LOOP.search(frames[loader].file) and all(_QUEUE.search(f.file) for f in inner):
        return "waits for the next index itself"
    place = places.classify(structs.replace(stack, frames=tuple(inner)), worker)
    known = f"{place.kind} " if place.kind not in ("unknown", "dataloader") else ""
    return f"{known}at {place.line}" if place.line else ""

"""The DataLoader worker that a rank waits for, and what that worker does."""

from __future__ import annotations

import re
from typing import Final

from msgspec import structs

from frtop_probe import wire
from frtop_tui.diagnosis import places
from frtop_tui.job.model import RankView

_LOADER: Final = re.compile(r"(?:^|/)torch/utils/data/")
_LOOP: Final = re.compile(r"/_utils/worker\.py$")
_QUEUE: Final = re.compile(r"(?:^|/)multiprocessing/queues\.py$")
_FORK: Final = re.compile(r"(?:^|/)multiprocessing/popen_fork\.py$")

AT_FORK: Final = (
    "a lock that another thread held at the fork stays locked in the worker: CPython's own before"
    " 3.11.10 (gh-112275), or a library's; workers by forkserver or spawn avoid it"
)


def worker_of(view: RankView) -> wire.Process | None:
    """The worker that a fetch waits for, or else a child that is plainly stuck in a file."""
    fetch = view.present.fetch if view.present is not None else None
    children = view.look.processes[1:] if view.look is not None else ()
    if fetch is not None and fetch.worker_pid:
        return next((child for child in children if child.pid == fetch.worker_pid), None)
    stuck = [
        c for c in children if places.classify(None, c).kind in places.FILES or c.state in "Tt"
    ]
    return stuck[0] if len(stuck) == 1 else None


def stack_of(view: RankView, worker: wire.Process | None) -> wire.ThreadStack | None:
    """Its main thread in the last look: the one that loads. What feeds its queue is another."""
    if worker is None or view.look is None:
        return None
    threads = next((dump.threads for dump in view.look.dumps if dump.pid == worker.pid), ())
    main = next((t for t in threads if t.tid == worker.pid), threads[0] if threads else None)
    return main if main is not None and main.frames else None


def is_forking(stack: wire.ThreadStack | None) -> bool:
    """Whether a worker is still inside the `os.fork()` that made it, which is a line of C."""
    if stack is None:
        return False
    leaf = stack.frames[0]
    return bool(_FORK.search(leaf.file)) and places.bare_name(leaf) == "_launch"


def doing(stack: wire.ThreadStack | None, worker: wire.Process | None) -> str:
    """`sleeping at data.py:31 (decode)`: by its own stack, "" if that tells nothing."""
    if stack is None:
        return ""
    if is_forking(stack):
        asleep = ", asleep on a lock" if places.is_asleep_on_lock(worker) else ""
        return f"has not got past its fork{asleep}"
    loader = next((i for i, f in enumerate(stack.frames) if _LOADER.search(f.file)), 0)
    # Everything from the loader on outward is what every worker has, and its parent's.
    inner = stack.frames[:loader] or stack.frames
    asks = loader and _QUEUE.search(inner[-1].file) and places.bare_name(inner[-1]) == "get"
    if asks and _LOOP.search(stack.frames[loader].file):
        return "waits for the next index itself"
    place = places.classify(structs.replace(stack, frames=inner), worker)
    known = f"{place.kind} " if place.kind != "unknown" else ""
    return f"{known}at {place.line}" if place.line else ""

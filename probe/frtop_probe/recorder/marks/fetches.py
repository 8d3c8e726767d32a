"""Records DataLoader fetches: whether the rank is in one, and which worker it waits for."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from frtop_probe.recorder.own_ring import OwnRing
from frtop_probe.ring.layout import MarkKind, StatusCell

UNKNOWN: Final = -1
NO_WORKERS: Final = -2


class FetchRecorder:
    """Writes the fetch cells: the worker before the start, because readers look at the start first.

    Each fetch is also a mark. A fetch inside another one, when a data set reads from a loader, is
    part of the outer one.
    """

    def __init__(self, ring: OwnRing) -> None:
        self._cells = ring.cells
        self._marks = ring.marks
        self._inside: set[int] = set()
        """Threads that are in a fetch now."""

    def begin(self, iterator: Any) -> int:
        """Begins a fetch; returns the argument for `end`."""
        worker, pid, workers = next_worker(iterator)
        cells = self._cells
        cells[StatusCell.FETCH_WORKER] = worker
        cells[StatusCell.FETCH_WORKER_PID] = pid
        cells[StatusCell.FETCH_WORKERS] = workers
        cells[StatusCell.FETCH_BEGIN_NS] = time.monotonic_ns()
        thread = threading.get_ident()
        if thread in self._inside:
            return 0
        self._inside.add(thread)
        return self._marks.begin(MarkKind.FETCH, max(0, worker + 1))

    def end(self, mark: int | None) -> None:
        self._cells[StatusCell.FETCH_END_NS] = time.monotonic_ns()
        if mark:
            self._inside.discard(threading.get_ident())
            self._marks.end(mark)


def next_worker(iterator: Any) -> tuple[int, int, int]:
    """Returns index and pid of the worker with the next batch, and the number of workers.

    Reads private attributes of torch's iterator if they exist.
    """
    workers = getattr(iterator, "_workers", None)
    if not workers:
        return (NO_WORKERS if getattr(iterator, "_num_workers", 0) == 0 else UNKNOWN), 0, 0
    tasks = getattr(iterator, "_task_info", {})
    task = tasks.get(getattr(iterator, "_rcvd_idx", None))
    if not getattr(iterator, "_in_order", True) or not task or task[0] >= len(workers):
        return UNKNOWN, 0, len(workers)
    index = int(task[0])
    return index, workers[index].pid or 0, len(workers)


def watch_fetches(
    module: Any, begin: Callable[[Any], int | None], end: Callable[[int | None], Any]
) -> Callable[..., Any] | None:
    """Wraps `__next__` of torch's DataLoader iterators and returns the wrapper.

    Results and exceptions pass unchanged, especially StopIteration.
    """
    base = getattr(module, "_BaseDataLoaderIter", None)
    original = getattr(base, "__next__", None)
    if base is None or original is None:
        return None

    @functools.wraps(original)
    def __next__(self: Any) -> Any:  # noqa: N807 - replaces the method of this name
        mark = begin(self)
        try:
            return original(self)
        finally:
            end(mark)

    base.__next__ = __next__
    return __next__

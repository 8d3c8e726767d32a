"""A thread that writes files: the source's thread never waits for a disk."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from frtop_probe.proc import daemon_thread
from frtop_tui.errors import FrtopError
from frtop_tui.job.model import Problem

Result = TypeVar("Result")
OnDone = Callable[[Result, int], None]
OnFailed = Callable[[Problem, int], None]
_Outcome = Callable[[int], None]
CLOSING_S: Final = 10.0


class FileWorker:
    """Runs tasks one after the other; reports their outcomes in the owner's thread."""

    def __init__(self) -> None:
        self._tasks: queue.SimpleQueue[Callable[[], _Outcome] | None] = queue.SimpleQueue()
        self._outcomes: queue.SimpleQueue[_Outcome] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def submit(
        self, task: Callable[[], Result], on_done: OnDone[Result], on_failed: OnFailed
    ) -> None:
        """Runs `task` in the thread; `update` then calls `on_done` or `on_failed`."""
        if self._thread is None:
            self._thread = daemon_thread.start(self._work, "frtop file worker")
        self._tasks.put(partial(_run, task, on_done, on_failed))

    def submit_silently(self, task: Callable[[], object]) -> None:
        """Runs `task` in the thread; its result and its failure are ignored."""
        self.submit(task, _ignore, _ignore)

    def update(self, now: int) -> None:
        """Reports the outcomes since the last call."""
        while not self._outcomes.empty():
            self._outcomes.get()(now)

    def close(self) -> None:
        """Waits a few seconds for the tasks that were submitted."""
        if self._thread is not None:
            self._tasks.put(None)
            self._thread.join(CLOSING_S)

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            self._outcomes.put(task())


def _run(task: Callable[[], Result], on_done: OnDone[Result], on_failed: OnFailed) -> _Outcome:
    try:
        result = task()
    except OSError as error:
        path = f"{error.filename}: " if error.filename else ""
        problem = Problem(
            f"{path}{error.strerror or error}", "name another file, or make room there"
        )
        return partial(on_failed, problem)
    except FrtopError as error:
        return partial(on_failed, Problem(error.text, error.next_step))
    except Exception as error:  # noqa: BLE001 - a worker's boundary: reported, and it goes on
        return partial(on_failed, Problem(f"frtop itself failed: {error!r}"))
    return partial(on_done, result)


def _ignore(_: object, _now: int) -> None:
    pass

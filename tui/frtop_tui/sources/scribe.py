"""A thread that writes files, so that the source's own goes on hearing."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

Result = TypeVar("Result")
Telling = Callable[[int], None]
CLOSING_S: Final = 10.0


class Scribe:
    """Does one task after the other; what became of them is told in the owner's thread."""

    def __init__(self) -> None:
        self._tasks: queue.SimpleQueue[Callable[[], Telling] | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[Telling] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def do(
        self,
        task: Callable[[], Result],
        then: Callable[[Result, int], None],
        failed: Callable[[str, int], None],
    ) -> None:
        """Runs `task` elsewhere; `then` or `failed` is called by `turn`, with its time."""
        if self._thread is None:
            # A daemon: a file system that hangs must not keep the program from ending.
            self._thread = threading.Thread(target=self._work, name="frtop scribe", daemon=True)
            self._thread.start()
        self._tasks.put(partial(_outcome, task, then, failed))

    def turn(self, now: int) -> None:
        """Tells what has been done since."""
        while not self._done.empty():
            self._done.get()(now)

    def close(self) -> None:
        """Gives what was begun some seconds to end."""
        if self._thread is not None:
            self._tasks.put(None)
            self._thread.join(CLOSING_S)

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            self._done.put(task())


def _outcome(
    task: Callable[[], Result],
    then: Callable[[Result, int], None],
    failed: Callable[[str, int], None],
) -> Telling:
    try:
        result = task()
    except OSError as error:
        return partial(failed, _sentence(error))
    except Exception as error:  # noqa: BLE001 - a worker's boundary: told, and it goes on
        return partial(failed, f"frtop itself failed: {error!r}")
    return partial(then, result)


def _sentence(error: OSError) -> str:
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{error.strerror or error}; name another file, or make room there"

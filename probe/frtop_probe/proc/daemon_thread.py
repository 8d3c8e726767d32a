"""Daemon threads for work on files that may never answer.

A hung file system must neither block the event loop nor keep the process from ending; the
threads of a pool would, because the interpreter joins them at exit.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import asyncio

Result = TypeVar("Result")


def start(work: Callable[[], object], name: str) -> threading.Thread:
    """Starts a daemon thread that calls `work`; `name` shows in stack dumps of frtop itself.

    Raises:
        RuntimeError: the system allows no more threads.
    """
    thread = threading.Thread(target=work, name=name, daemon=True)
    thread.start()
    return thread


def run(work: Callable[[], Result], name: str) -> asyncio.Future[Result]:
    """Calls `work` in a daemon thread; the future gets its result or exception.

    Needs a running event loop. The future stays pending while `work` hangs.

    Raises:
        RuntimeError: as for `start`.
    """
    import asyncio  # noqa: PLC0415 - slow to import: `frtop run` needs `start` only

    loop = asyncio.get_running_loop()
    future: asyncio.Future[Result] = loop.create_future()

    def deliver(result: Result | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]  # that of `work`

    def body() -> None:
        result: Result | None = None
        failure: BaseException | None = None
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001 - raised where the future is awaited
            failure = error
        with suppress(RuntimeError):  # the loop has been closed
            loop.call_soon_threadsafe(deliver, result, failure)

    start(body, name)
    return future

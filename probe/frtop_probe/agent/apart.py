"""Work on files that may never answer, in a daemon thread.

A file system that hangs must neither stop the ticks nor keep the agent from leaving, as
the threads of a pool would.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

Result = TypeVar("Result")


def apart(work: Callable[[], Result]) -> asyncio.Future[Result]:
    """Starts `work`; what it gives or raises comes by the future, if ever."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Result] = loop.create_future()

    def deliver(result: Result | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]  # that of `work`

    def run() -> None:
        result: Result | None = None
        failure: BaseException | None = None
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001 - raised where it is awaited
            failure = error
        with suppress(RuntimeError):  # the loop has closed meanwhile
            loop.call_soon_threadsafe(deliver, result, failure)

    threading.Thread(target=run, name="apart", daemon=True).start()
    return future

"""Awaits something for a limited time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

Result = TypeVar("Result")


async def within(seconds: float, work: Awaitable[Result]) -> Result:
    """Returns the result of `work`, which is cancelled if it takes longer.

    `asyncio.wait_for` loses a cancellation that comes as `work` ends (before Python 3.12): the
    caller goes on, and whoever cancelled it waits for it forever.

    Raises:
        TimeoutError: `work` took longer.
    """
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait((task,), timeout=seconds)
        if task.done():
            return task.result()
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait((task,))
    raise TimeoutError

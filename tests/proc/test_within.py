"""A limited wait: its result, its end, and a cancellation that comes at any moment."""

from __future__ import annotations

import asyncio

import pytest

from frtop_probe.proc.within import within


async def _value() -> int:
    await asyncio.sleep(0)
    return 7


def test_a_result_in_time() -> None:
    assert asyncio.run(within(60, _value())) == 7


def test_what_takes_longer_is_cancelled() -> None:
    async def body() -> bool:
        work = asyncio.ensure_future(asyncio.sleep(60))
        with pytest.raises(TimeoutError):
            await within(0.01, work)
        return work.cancelled()

    assert asyncio.run(body())


def test_a_cancellation_as_the_work_ends_is_not_lost() -> None:
    async def body() -> bool:
        work: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        waiting = asyncio.create_task(within(60, asyncio.shield(work)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        work.set_result(1)
        await asyncio.sleep(0)  # the shield has the result, and `within` has not run yet
        waiting.cancel()
        await asyncio.wait((waiting,))
        return waiting.cancelled()

    assert asyncio.run(body())

"""An operator that reads late, never, or asks too much: the agent stays small and goes on."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import suppress

import pytest

from frtop_probe.agent.rights import Operator, Rights
from frtop_probe.pipe import channel as pipe_channel
from frtop_probe.pipe.channel import MAX_QUEUED, MAX_WAITING, PipeChannel
from frtop_probe.pipe.lines import encoded
from waiting import DEADLINE_S, wait_for_async

UPDATE = os.urandom(100_000)
OPERATOR = Operator(b"", b"")


class Ends:
    """Both pipes of an agent; `ended` counts how often it was said that the operator has left."""

    def __init__(self) -> None:
        self.input, self.to_agent = os.pipe()
        self.from_agent, self.output = os.pipe()
        os.set_blocking(self.from_agent, False)
        self.ended = 0

    def channel(self) -> PipeChannel:
        def count() -> None:
            self.ended += 1

        return PipeChannel(Rights(), count, descriptors=(self.input, self.output))

    def read(self) -> bytes:
        with suppress(BlockingIOError):
            return os.read(self.from_agent, 1 << 20)
        return b""

    def close(self) -> None:
        for descriptor in (self.input, self.to_agent, self.from_agent, self.output):
            with suppress(OSError):
                os.close(descriptor)


@pytest.fixture
def ends() -> Iterator[Ends]:
    one = Ends()
    yield one
    one.close()


async def test_updates_are_dropped_and_responses_wait_while_nobody_reads(ends: Ends) -> None:
    channel = ends.channel()
    for _ in range(200):
        channel.publish(UPDATE)
    sending = asyncio.create_task(channel.send(OPERATOR, b"response"))
    await asyncio.sleep(0.05)
    assert not sending.done()
    stream = bytearray()

    def has_response() -> bool:
        stream.extend(ends.read())
        return stream.endswith(b"\n") and b"frtop-res " in stream

    await wait_for_async(has_response, "all that was sent arrives")
    await sending
    sent = encoded(b"frtop-up", UPDATE)
    assert MAX_QUEUED <= stream.count(b"frtop-up ") * len(sent) <= MAX_QUEUED + 2 * len(sent)
    assert stream.startswith(sent)  # none was cut
    channel.publish(UPDATE)  # and it goes on
    stream.clear()
    await wait_for_async(lambda: has_response() or stream.endswith(sent), "the next")
    await channel.close()
    assert not ends.ended


async def test_last_words_do_not_wait_for_an_operator_that_does_not_read(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipe_channel, "LAST_WORDS_S", 0.1)
    channel = ends.channel()
    for _ in range(200):
        channel.publish(UPDATE)
    await asyncio.wait_for(channel.close(), DEADLINE_S)


async def test_requests_that_nobody_takes_are_not_read(ends: Ends) -> None:
    channel = ends.channel()
    channel.start()
    line = encoded(b"req", b"x")
    os.write(ends.to_agent, line * MAX_WAITING)
    await wait_for_async(lambda: not channel.reading, "it stops to read")
    os.write(ends.to_agent, line + b"bye\n")
    for _ in range(MAX_WAITING + 1):
        assert await asyncio.wait_for(channel.receive(), DEADLINE_S) == (OPERATOR, b"x")
    await wait_for_async(lambda: ends.ended, "the rest is read")
    await channel.close()


async def test_an_operator_that_says_nothing_has_left(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipe_channel, "SILENCE_S", 0.3)
    channel = ends.channel()
    channel.start()
    watching = asyncio.create_task(channel.watch())
    for _ in range(4):
        await asyncio.sleep(0.1)
        os.write(ends.to_agent, b"ping 1\n")
    assert not ends.ended
    await asyncio.wait_for(watching, DEADLINE_S)
    assert ends.ended
    await channel.close()


async def test_nobody_is_there_to_read(ends: Ends) -> None:
    channel = ends.channel()
    os.close(ends.from_agent)
    channel.publish(b"x")
    assert ends.ended == 1
    channel.publish(b"x")
    await channel.send(OPERATOR, b"x")
    assert ends.ended == 1
    await channel.close()


async def test_words_say_what_was_malformed(ends: Ends) -> None:
    channel = ends.channel()
    channel.start()
    os.write(ends.to_agent, b"nonsense\nbye\n")
    await wait_for_async(lambda: ends.ended, "it ends")
    assert "nonsense" in channel.problem
    await channel.close()
    assert b'frtop-error {"text": "unexpected line on the pipe' in ends.read()

"""Asks RAS once: a few lines over TCP, each with a deadline, then its answer until it closes.

`CLIENT PROTOCOL 2`, `TIMEOUT n`, `SET FORMAT json`, `STATUS`. A process that is stopped takes
connections and never greets: until a status was asked for, another try reaches another process. The
status itself is asked for once, never again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

from frtop_probe import wire
from frtop_probe.proc import daemon_thread
from frtop_probe.ras.json_answer import AnswerError, parse_json, printable
from frtop_probe.ras.text_answer import parse_text

CONNECT_S: Final = 1.0
GREETING_S: Final = 1.0
TIMEOUT_S: Final = 2
"""How long RAS waits for its other processes, by our request."""
ANSWER_S: Final = TIMEOUT_S + 6.0
"""RAS may take 5 s longer than its timeout, by the description of its client."""
TRIES: Final = 3
MAX_ANSWER: Final = 32 << 20
"""Bytes of an answer: a rank of a communicator has some 600 in JSON."""
JSON_SINCE: Final = (2, 28, 7)
_MAX_LINE: Final = 4096
_CHUNK: Final = 256 << 10


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of asking: a report, or an error as in `wire.RasResponse` with a text.

    `asked` says whether RAS was asked for its status: only that is the risk.
    """

    address: str
    asked: bool
    report: wire.RasReport | None = None
    error: str = ""
    text: str = ""


class _Failure(Exception):
    def __init__(self, error: str, text: str) -> None:
        super().__init__(error, text)
        self.error, self.text = error, text


class _NoGreeting(Exception):
    """Nobody spoke: another try may reach another process."""


async def ask(
    hosts: Sequence[str],
    port: int,
    version: tuple[int, ...] = (),
    *,
    answer_s: float = ANSWER_S,
) -> Answer:
    """Asks RAS at the first of `hosts` that takes a connection.

    Args:
        hosts: addresses of this host.
        port: of RAS.
        version: of NCCL, () if not known; older ones are not asked for JSON.
        answer_s: how long its answer may take.
    """
    silent = 0
    failure = _Failure("closed", f"nobody listens on port {port}")
    for host in (host for _ in range(TRIES) for host in hosts):
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            reader, writer = await asyncio.wait_for(
                asyncio.open_connection(host, port, limit=_MAX_LINE), CONNECT_S
            )
        except (asyncio.TimeoutError, TimeoutError):
            failure = _Failure(
                "deadline", f"{address} takes no connection within {CONNECT_S:.0f} s"
            )
            continue
        except OSError as error:
            if failure.error == "closed":
                text = f"{address} cannot be connected to: {error.strerror or error}"
                failure = _Failure("closed", text)
            continue
        try:
            return await _exchange(reader, writer, address, version, answer_s)
        except _NoGreeting:
            silent += 1
            failure = _Failure(
                "deadline",
                f"{silent} tries at {address} were not greeted within {GREETING_S:.0f} s each: its"
                " processes are stopped or hang",
            )
        finally:
            writer.close()
            with suppress(OSError, asyncio.TimeoutError, TimeoutError):
                await asyncio.wait_for(writer.wait_closed(), GREETING_S)
    return Answer("", asked=False, error=failure.error, text=failure.text)


async def _exchange(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    address: str,
    version: tuple[int, ...],
    answer_s: float,
) -> Answer:
    asked = False
    try:
        as_json = await _prepare(reader, writer, version)
        # Plain text names too few ranks; JSON lists all in either way.
        writer.write(b"STATUS\n" if as_json else b"VERBOSE STATUS\n")
        asked = True
        data = await _read_all(reader, answer_s)
        # An answer of 8 MiB takes 0.4 s: the agent's ticks go on meanwhile.
        parse = partial(parse_json if as_json else parse_text, data)
        report = await daemon_thread.run(parse, "frtop RAS")
    except _Failure as failure:
        return Answer(address, asked, error=failure.error, text=failure.text)
    except AnswerError as error:
        if error.cut:
            return Answer(address, asked, error="cut", text="RAS's answer is cut off")
        return Answer(address, asked, error="malformed", text=f"not RAS's answer: {error}")
    except OSError as error:
        text = f"the connection ended: {error.strerror or error}"
        return Answer(address, asked, error="cut", text=text)
    return Answer(address, asked, report=report)


async def _prepare(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, version: tuple[int, ...]
) -> bool:
    """Greets, and sets timeout and format; returns whether JSON comes.

    Raises:
        _NoGreeting: nothing came.
        _Failure: this is not RAS.
    """
    hello = await _command(reader, writer, "CLIENT PROTOCOL 2", first=True)
    if not hello.upper().startswith("SERVER PROTOCOL "):
        raise _Failure("malformed", f"this is not NCCL's RAS: it says {hello[:80]!r}")
    answer = await _command(reader, writer, f"TIMEOUT {TIMEOUT_S}")
    if answer.upper() != "OK":
        raise _Failure("malformed", f"RAS does not take a timeout: {answer[:80]!r}")
    if version and version < JSON_SINCE:
        return False
    return (await _command(reader, writer, "SET FORMAT json")).upper() == "OK"


async def _command(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, line: str, *, first: bool = False
) -> str:
    writer.write(line.encode() + b"\n")
    try:
        answer = await asyncio.wait_for(reader.readline(), GREETING_S)
    except (asyncio.TimeoutError, TimeoutError):
        if first:
            raise _NoGreeting from None
        raise _Failure("deadline", f"no answer to {line!r} within {GREETING_S:.0f} s") from None
    except ValueError:  # a longer line than any answer
        raise _Failure("malformed", "this is not NCCL's RAS: its lines are too long") from None
    if not answer.endswith(b"\n"):
        raise _Failure("cut", f"the connection ended after {line!r}")
    return printable(answer.decode("utf-8", "replace").strip())


async def _read_all(reader: asyncio.StreamReader, seconds: float) -> bytes:
    """Reads until the other side closes; raises `_Failure` for what is too long or too large."""
    parts: list[bytes] = []
    size, end = 0, time.monotonic() + seconds
    try:
        while part := await asyncio.wait_for(
            reader.read(_CHUNK), max(0.001, end - time.monotonic())
        ):
            size += len(part)
            if size > MAX_ANSWER:
                raise _Failure("malformed", f"its answer is larger than {MAX_ANSWER >> 20} MiB")
            if time.monotonic() > end:
                raise asyncio.TimeoutError
            parts.append(part)
    except (asyncio.TimeoutError, TimeoutError):
        text = f"its answer was not complete within {seconds:.0f} s: {size:,} bytes came"
        raise _Failure("deadline", text) from None
    if not size:
        raise _Failure("cut", "RAS closed the connection without an answer")
    return b"".join(parts)

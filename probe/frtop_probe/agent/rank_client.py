"""Passes any request on to a rank, over its recorder's socket.

Requests and replies are encoded by field name. Only the rank and the feature that declares them
know their meaning. If a rank does not answer, `/proc` and the ring show why. Replies are checked
like all data from outside.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import time
from functools import cache
from typing import Any, Final, get_args, get_origin, get_type_hints

import msgspec
from msgspec import structs

from frtop_probe import wire
from frtop_probe.agent.ring_rank import RingRank
from frtop_probe.proc import processes
from frtop_probe.proc.kernel_files import printable
from frtop_probe.proc.within import within
from frtop_probe.ring import beside
from frtop_probe.ring.header import RingError
from frtop_probe.ring.layout import State, StatusCell

DEADLINE_S: Final = 1.8
"""Limit for one exchange; operators get a response within 2 s."""
SILENT_NS: Final = 1_000_000_000
"""Age at which a heartbeat counts as stopped: twice the longest pause between heartbeats."""
MAX_HEADER: Final = 4 * 1024 * 1024
MAX_DATA: Final = 4 * 1024 * 1024
MAX_TEXT: Final = 300
OLDER: Final = "the frtop in the job is older and cannot do that: restart the job with this version"
_HEAD: Final = struct.Struct("!II")
_ERRORS: Final = frozenset({"", "gone", "none", "failed", "busy", "deadline"})
"""Errors that a rank may report; all others are detected from outside."""


class NoReplyError(Exception):
    """There is no reply: `error` as in `wire.TensorsResponse`, `text` with the next step."""

    def __init__(self, error: str, text: str) -> None:
        super().__init__(error, text)
        self.error = error
        self.text = text


async def pass_on(host: str, request: wire.RankRequest, rank: RingRank) -> wire.Response:
    """Returns a rank's answer to a request with `in_rank`, or why there is none."""
    if isinstance(request, wire.PieceRequest):
        request = structs.replace(request, size=max(0, min(request.size, MAX_DATA)))
    given: dict[str, Any] = {"host": host, "at_ns": time.monotonic_ns(), **_by_name(request)}
    answer = type(request).answer
    try:
        reply, data = await query(rank, {**_by_name(request), "ask": type(request).__name__})
        if isinstance(request, wire.PieceRequest) and len(data) > request.size:
            raise _malformed_reply(rank)
        if reply.get("error") == "none" and not reply.get("help"):
            reply["help"] = request.nothing.format(pid=rank.pid)
        given |= {"at_ns": time.monotonic_ns(), "data": data, "size": len(data)}
        return _checked(answer, {**reply, **given}, rank)
    except NoReplyError as none:
        return _checked(answer, {**given, "size": 0, "error": none.error, "help": none.text}, rank)


def _checked(answer: type[wire.Response], named: dict[str, Any], rank: RingRank) -> wire.Response:
    """Makes an answer that operators accept.

    Raises:
        NoReplyError: a field has another type.
    """
    try:
        made: wire.Response = _made(answer, named)
        found: wire.Response = _decoder(answer).decode(msgspec.msgpack.encode(made))
    except (TypeError, ValueError, RecursionError, OverflowError, msgspec.MsgspecError):
        raise _malformed_reply(rank) from None
    return found


@cache
def _decoder(answer: type[wire.Response]) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(answer)


@cache
def _types(kind: type[Any]) -> dict[str, Any]:
    return get_type_hints(kind)


def _made(kind: Any, value: Any) -> Any:
    """Makes a value of a type from named fields; its texts are safe for terminals."""
    if isinstance(value, str):
        return printable(value, MAX_TEXT)
    parts = get_args(kind)
    if isinstance(value, list):
        each = parts[:1] * len(value) if parts[1:] == (...,) else (*parts, *(Any for _ in value))
        return tuple(_made(part, one) for part, one in zip(each, value, strict=False))
    if isinstance(value, dict):
        kinds = (kind, *parts)
        table = next((one for one in kinds if get_origin(one) is dict), None)
        if table is not None:
            _, inner = get_args(table)
            return {printable(name, MAX_TEXT): _made(inner, one) for name, one in value.items()}
        chosen = next((one for one in kinds if hasattr(one, "__struct_fields__")), None)
        if chosen is None:
            raise TypeError("unexpected field names")
        types = _types(chosen)
        known = chosen.__struct_fields__
        return chosen(**{name: _made(types[name], value[name]) for name in known if name in value})
    return value


def _by_name(value: Any) -> Any:
    """Returns a request as names and plain values."""
    if hasattr(value, "__struct_fields__"):
        return {name: _by_name(getattr(value, name)) for name in value.__struct_fields__}
    return value


async def ask_for_permission(rank: RingRank) -> bool:
    """Asks a rank to let this process read its memory; returns whether the rank allowed it."""
    try:
        reply, _ = await query(rank, {"ask": "trace"})
    except NoReplyError:
        return False
    return not reply.get("error")


async def query(rank: RingRank, request: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
    """Sends one request and reads the reply; checks only its error.

    Raises:
        NoReplyError: no reply came; says why.
    """
    _check_can_answer(rank)
    connection = _connect_to(rank)
    try:
        exchange = _exchange(connection, json.dumps(request).encode() + b"\n")
        header, found = await within(DEADLINE_S, exchange)
        reply = json.loads(header)
    except TimeoutError:
        raise _why_no_reply(rank) from None
    except (ValueError, RecursionError, OverflowError):
        raise _malformed_reply(rank) from None
    except (OSError, EOFError):  # the rank has ended, or closed the connection
        raise _why_no_reply(rank) from None
    finally:
        connection.close()
    if not isinstance(reply, dict):
        raise _malformed_reply(rank)
    error = reply.get("error", "")
    if error == "unknown":
        raise NoReplyError("missing", OLDER)
    if error not in _ERRORS:
        raise _malformed_reply(rank)
    return reply, found


def _connect_to(rank: RingRank) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.setblocking(False)
        with beside.address(beside.socket_of(rank.ring.path)) as address:
            connection.connect(address)
    except (FileNotFoundError, ConnectionRefusedError):
        connection.close()
        raise _why_no_socket(rank) from None
    except OSError:  # for instance, when too many connections wait
        connection.close()
        raise _why_no_reply(rank) from None
    except BaseException:
        connection.close()
        raise
    return connection


async def _exchange(connection: socket.socket, request: bytes) -> tuple[bytes, bytes]:
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(connection, request)
    sizes = _HEAD.unpack(await _receive(connection, _HEAD.size))
    if sizes[0] > MAX_HEADER or sizes[1] > MAX_DATA:
        raise OverflowError("the reply is larger than any request allows")
    header = await _receive(connection, sizes[0])
    return header, await _receive(connection, sizes[1])


async def _receive(connection: socket.socket, size: int) -> bytes:
    loop = asyncio.get_running_loop()
    found = bytearray()
    while len(found) < size:
        piece = await loop.sock_recv(connection, min(size - len(found), 256 * 1024))
        if not piece:
            raise EOFError("the rank closed the connection")
        found += piece
    return bytes(found)


def _check_can_answer(rank: RingRank) -> None:
    """Raises `NoReplyError` when `/proc` shows that the rank cannot reply."""
    seen = processes.read_stat(rank.pid) if rank.lives else None
    if seen is None or seen.start_ticks != rank.start_ticks or seen.state in "ZX":
        raise NoReplyError("gone", f"process {rank.pid} has ended: see how it ended")
    if seen.state == "T":
        raise NoReplyError(
            "stopped",
            f"process {rank.pid} is stopped: `kill -CONT {rank.pid}` resumes it, then ask again",
        )
    if seen.state == "t":
        raise NoReplyError(
            "stopped", f"a debugger holds process {rank.pid}: resume it there, then ask again"
        )


def _why_no_reply(rank: RingRank) -> NoReplyError:
    """Why a rank with a socket did not reply."""
    try:
        _check_can_answer(rank)
        heartbeat_ns = rank.ring.cell(StatusCell.HEARTBEAT_NS)
    except NoReplyError as why:
        return why
    except RingError:  # it has been closed
        return NoReplyError("gone", f"process {rank.pid} has a new recorder: ask again")
    age_ns = time.monotonic_ns() - heartbeat_ns
    if age_ns > SILENT_NS:
        return NoReplyError(
            "silent",
            f"process {rank.pid} lives but has run no Python for {age_ns / 1e9:.0f} s, most "
            "likely because a call in C holds the GIL: its stacks show which",
        )
    return NoReplyError(
        "deadline",
        f"process {rank.pid} runs but did not answer within {DEADLINE_S:.0f} s: others may be "
        "asking it too, so ask again",
    )


def _why_no_socket(rank: RingRank) -> NoReplyError:
    """Why the socket does not exist, or nobody listens on it."""
    silent = _why_no_reply(rank)
    if silent.error in ("gone", "stopped"):
        return silent
    state = rank.ring.cell(StatusCell.STATE)
    if state == State.STOPPED:
        text = (
            f"the recorder of process {rank.pid} was stopped (frtop_probe.stop()): only the "
            "program can start it again"
        )
    elif state == State.OFF:
        text = f"the recorder of process {rank.pid} switched itself off: its notes say why"
    else:
        text = (
            f"process {rank.pid} cannot be asked: its frtop is older than this agent's, or there "
            f"was no room for a socket in {rank.ring.path.parent} (then its notes say so), or "
            "its socket was deleted; start the job again with this frtop, or with another "
            "FRTOP_DIR"
        )
    return NoReplyError("missing", text)


def _malformed_reply(rank: RingRank) -> NoReplyError:
    text = f"the reply of process {rank.pid} cannot be parsed: is its frtop another version?"
    return NoReplyError("failed", text)

"""Asks a rank for its tensors, for permission to read it, ..., by its recorder's socket.

A rank that hangs may not answer; then `/proc` and the ring show why. Replies are checked like
all data from outside.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import time
from typing import Any, Final, TypeVar

import msgspec

from frtop_probe import wire
from frtop_probe.agent.ring_rank import RingRank
from frtop_probe.proc import processes
from frtop_probe.ring import socket_path
from frtop_probe.ring.header import RingError
from frtop_probe.ring.layout import State, StatusCell

DEADLINE_S: Final = 1.8
"""Limit for one exchange; operators get a response within two seconds."""
SILENT_NS: Final = 1_000_000_000
"""Age at which a heartbeat counts as stopped: two of the longest pauses between heartbeats."""
MAX_HEADER: Final = 4 * 1024 * 1024
MAX_DATA: Final = 4 * 1024 * 1024
MAX_TEXT: Final = 300
_HEAD: Final = struct.Struct("!II")
_ERRORS: Final = frozenset({"", "gone", "none", "failed", "busy", "deadline"})
"""Errors that a rank may report itself; all others are found from outside."""


class ReplyHead(msgspec.Struct, frozen=True):
    """What the header of every reply has."""

    error: str = ""
    help: str = ""


class Reply(ReplyHead, frozen=True):
    """The header of a reply about tensors, or a profile."""

    ops: tuple[wire.OpTensors, ...] = ()
    total: int = 0
    stage: str = ""
    steps: tuple[int, int] = (0, 0)
    lasted_ns: int = 0
    stood_still_ns: int = 0
    clocks: tuple[tuple[int, int], ...] = ()
    files: tuple[tuple[str, int], ...] = ()


class NoReplyError(Exception):
    """There is no reply: `error` as in `wire.TensorsResponse`, `text` with the next step."""

    def __init__(self, error: str, text: str) -> None:
        super().__init__(error, text)
        self.error = error
        self.text = text


_replies = msgspec.json.Decoder(Reply)
_any_reply = msgspec.json.Decoder(ReplyHead)
AnyReply = TypeVar("AnyReply", bound=ReplyHead)


async def summarize_tensors(
    host: str, rank: RingRank, request: wire.TensorsRequest
) -> wire.TensorsResponse:
    """Summarises the tensors of a rank's pending ops; says why when it cannot, within 2 s."""
    ops: tuple[wire.OpTensors, ...] = ()
    error = text = ""
    try:
        payload = {"sequence": request.sequence, "devices": request.devices}
        reply, _ = await query(rank, {"ask": "tensors", **payload}, _replies)
        ops, error, text = tuple(map(_printable_op, reply.ops)), reply.error, reply.help
        if error == "none":
            text = f"process {rank.pid} is pending in no op with tensors: ask the ranks that are"
    except NoReplyError as none:
        error, text = none.error, none.text
    return wire.TensorsResponse(request.id, host, rank.key, time.monotonic_ns(), ops, error, text)


async def read_tensor_data(rank: RingRank, request: wire.DataRequest) -> wire.DataResponse:
    """Reads bytes of one tensor of a pending op."""
    total, found, error, text = 0, b"", "", ""
    size = max(0, min(request.size, MAX_DATA))
    payload = {
        "sequence": request.sequence,
        "index": request.index,
        "offset": request.offset,
        "size": size,
    }
    try:
        reply, found = await query(rank, {"ask": "data", **payload}, _replies)
        total, error, text = reply.total, reply.error, reply.help
        if len(found) > size:
            raise _malformed_reply(rank)
    except NoReplyError as none:
        found, error, text = b"", none.error, none.text
    return wire.DataResponse(
        request.id,
        rank.key,
        request.sequence,
        request.index,
        request.offset,
        total,
        found,
        error,
        text,
    )


async def ask_rank(rank: RingRank, request: dict[str, Any]) -> Reply:
    """Asks a rank something that is answered without data.

    Raises:
        NoReplyError: there is no reply, and why.
    """
    reply, _ = await query(rank, request, _replies)
    return msgspec.structs.replace(reply, stage=printable(reply.stage))


async def ask_for_permission(rank: RingRank) -> bool:
    """Asks a rank to let this process read its memory; returns whether it did."""
    try:
        reply, _ = await query(rank, {"ask": "trace"}, _any_reply)
    except NoReplyError:
        return False
    return not reply.error


async def query(
    rank: RingRank, request: dict[str, Any], decoder: msgspec.json.Decoder[AnyReply]
) -> tuple[AnyReply, bytes]:
    """Sends one request and reads the reply; raises `NoReplyError`."""
    _check_can_answer(rank)
    connection = _connect_to(rank)
    try:
        exchange = _exchange(connection, json.dumps(request).encode() + b"\n")
        header, found = await asyncio.wait_for(exchange, DEADLINE_S)
        reply = decoder.decode(header)
        msgspec.msgpack.encode(reply)  # raises for numbers that msgpack cannot encode
    except (asyncio.TimeoutError, TimeoutError):
        raise _why_no_reply(rank) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, OverflowError):
        raise _malformed_reply(rank) from None
    except (OSError, EOFError):  # the rank has ended, or closed the connection
        raise _why_no_reply(rank) from None
    finally:
        connection.close()
    if reply.error not in _ERRORS:
        raise _malformed_reply(rank)
    return msgspec.structs.replace(reply, help=printable(reply.help)), found


def _connect_to(rank: RingRank) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.setblocking(False)
        with socket_path.address(socket_path.socket_of(rank.ring.path)) as address:
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
        raise OverflowError("a reply that is larger than any request's")
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
        return NoReplyError("gone", f"process {rank.pid} has started anew: ask for the state again")
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
    """Why there is no socket, or nobody listens on it."""
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
    text = f"the reply of process {rank.pid} cannot be parsed: is its frtop of another version?"
    return NoReplyError("failed", text)


def _printable_op(op: wire.OpTensors) -> wire.OpTensors:
    return wire.OpTensors(
        op.sequence, tuple(map(_printable_tensor, op.tensors)), printable(op.error)
    )


def _printable_tensor(tensor: wire.TensorSummary) -> wire.TensorSummary:
    return msgspec.structs.replace(
        tensor,
        role=printable(tensor.role),
        dtype=printable(tensor.dtype),
        device=printable(tensor.device),
        first=tuple(map(printable, tensor.first)),
        checksum=printable(tensor.checksum),
        error=printable(tensor.error),
    )


def printable(text: str) -> str:
    """Makes a rank's text safe for terminals: one line, without control characters."""
    return "".join(letter if letter.isprintable() else " " for letter in text[:MAX_TEXT])

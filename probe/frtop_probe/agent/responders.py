"""Asks a rank itself, through the socket of its recorder's thread.

A rank that hangs may not be able to answer; then why is told from outside, by `/proc` and
the ring. What a rank says is checked like anything else that comes from elsewhere.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import time
from typing import Any, Final

import msgspec

from frtop_probe import wire
from frtop_probe.agent.rank import Rank
from frtop_probe.eyes import proc
from frtop_probe.ring import socket_path
from frtop_probe.ring.layout import State, StatusCell

DEADLINE_S: Final = 1.8
"""For all of it; whoever asked is told within two seconds."""
SILENT_NS: Final = 1_000_000_000
"""Older than this, and a beat has stopped: two of the longest pauses between beats."""
MAX_HEADER: Final = 4 * 1024 * 1024
MAX_DATA: Final = 4 * 1024 * 1024
MAX_TEXT: Final = 300
_HEAD: Final = struct.Struct("!II")
_ERRORS: Final = frozenset({"", "gone", "none", "failed"})
"""What a rank may say of itself; everything else is seen from outside."""


class _Said(msgspec.Struct, frozen=True):
    """The header of a reply."""

    error: str = ""
    help: str = ""
    ops: tuple[wire.OpTensors, ...] = ()
    total: int = 0


class _NoAnswerError(Exception):
    """Why there is none: a word of the wire's, and a sentence with the next step."""

    def __init__(self, error: str, text: str) -> None:
        super().__init__(error, text)
        self.error = error
        self.text = text


_said = msgspec.json.Decoder(_Said)


async def tensors(host: str, rank: Rank, ask: wire.TensorsRequest) -> wire.TensorsResponse:
    """What is in the tensors of a rank's pending ops, or why it cannot say, within 2 s."""
    ops: tuple[wire.OpTensors, ...] = ()
    error = text = ""
    try:
        said, _ = await _ask(rank, {"ask": "tensors", "sequence": ask.sequence})
        ops, error, text = tuple(map(_plain_op, said.ops)), said.error, said.help
        if error == "none":
            text = f"process {rank.pid} waits in no op that has tensors: ask the ranks that wait"
    except _NoAnswerError as none:
        error, text = none.error, none.text
    return wire.TensorsResponse(ask.id, host, rank.key, time.monotonic_ns(), ops, error, text)


async def data(rank: Rank, ask: wire.DataRequest) -> wire.DataResponse:
    """Bytes of one tensor of a pending op."""
    total, found, error, text = 0, b"", "", ""
    size = max(0, min(ask.size, MAX_DATA))
    where = {"sequence": ask.sequence, "index": ask.index, "offset": ask.offset, "size": size}
    try:
        said, found = await _ask(rank, {"ask": "data", **where})
        total, error, text = said.total, said.error, said.help
        if len(found) > size:
            raise _unclear(rank)
    except _NoAnswerError as none:
        found, error, text = b"", none.error, none.text
    return wire.DataResponse(
        ask.id, rank.key, ask.sequence, ask.index, ask.offset, total, found, error, text
    )


async def _ask(rank: Rank, request: dict[str, Any]) -> tuple[_Said, bytes]:
    """Raises `_NoAnswerError`."""
    _refuse_at_once(rank)
    connection = _connect(rank)
    try:
        exchange = _exchange(connection, json.dumps(request).encode() + b"\n")
        header, found = await asyncio.wait_for(exchange, DEADLINE_S)
        said = _said.decode(header)
        msgspec.msgpack.encode(said)  # raises for numbers that JSON has and the wire has not
    except (asyncio.TimeoutError, TimeoutError):
        raise _why_silent(rank) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, OverflowError):
        raise _unclear(rank) from None
    except (OSError, EOFError):  # ended, or did not want to
        raise _why_silent(rank) from None
    finally:
        connection.close()
    if said.error not in _ERRORS:
        raise _unclear(rank)
    return msgspec.structs.replace(said, help=_plain(said.help)), found


def _connect(rank: Rank) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.setblocking(False)
        with socket_path.address(socket_path.socket_of(rank.ring.path)) as place:
            connection.connect(place)
    except (FileNotFoundError, ConnectionRefusedError):
        connection.close()
        raise _why_missing(rank) from None
    except OSError:  # among others: too many wait there already
        connection.close()
        raise _why_silent(rank) from None
    except BaseException:
        connection.close()
        raise
    return connection


async def _exchange(connection: socket.socket, request: bytes) -> tuple[bytes, bytes]:
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(connection, request)
    sizes = _HEAD.unpack(await _receive(connection, _HEAD.size))
    if sizes[0] > MAX_HEADER or sizes[1] > MAX_DATA:
        raise OverflowError("a reply that nobody has asked for")
    header = await _receive(connection, sizes[0])
    return header, await _receive(connection, sizes[1])


async def _receive(connection: socket.socket, size: int) -> bytes:
    loop = asyncio.get_running_loop()
    found = bytearray()
    while len(found) < size:
        piece = await loop.sock_recv(connection, min(size - len(found), 256 * 1024))
        if not piece:
            raise EOFError("the rank hung up")
        found += piece
    return bytes(found)


def _refuse_at_once(rank: Rank) -> None:
    """For what `/proc` tells without doubt."""
    seen = proc.stat(rank.pid) if rank.lives else None
    if seen is None or seen.start_ticks != rank.ring.header.start_ticks or seen.state in "ZX":
        raise _NoAnswerError(
            "gone", f"process {rank.pid} has ended, and its tensors with it: see how it ended"
        )
    if seen.state == "T":
        raise _NoAnswerError(
            "stopped",
            f"process {rank.pid} is stopped: `kill -CONT {rank.pid}` lets it go on, then ask again",
        )
    if seen.state == "t":
        raise _NoAnswerError(
            "stopped", f"a debugger holds process {rank.pid}: let it go on there, then ask again"
        )


def _why_silent(rank: Rank) -> _NoAnswerError:
    """Asked, but it did not answer."""
    try:
        _refuse_at_once(rank)
        beat_ns = rank.ring.cell(StatusCell.BEAT_NS)
    except _NoAnswerError as why:
        return why
    except ValueError:  # the ring was let go of meanwhile
        return _NoAnswerError("gone", f"process {rank.pid} began anew: ask for the state again")
    age_ns = time.monotonic_ns() - beat_ns
    if age_ns > SILENT_NS:
        return _NoAnswerError(
            "silent",
            f"process {rank.pid} lives but has run no Python for {age_ns / 1e9:.0f} s, most "
            "likely since a call in C holds the GIL: its stacks show which",
        )
    return _NoAnswerError(
        "deadline",
        f"process {rank.pid} beats but did not answer within {DEADLINE_S:.0f} s: others may be "
        "asking it too, so ask again",
    )


def _why_missing(rank: Rank) -> _NoAnswerError:
    """There is no socket, or nobody listens at it."""
    silent = _why_silent(rank)
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
            f"was no room for a socket in {rank.ring.path.parent} (then its notes say so), or the "
            "file of its socket was deleted; start the job anew with this frtop, or with another "
            "FRTOP_DIR"
        )
    return _NoAnswerError("missing", text)


def _unclear(rank: Rank) -> _NoAnswerError:
    text = f"what process {rank.pid} answered was not understood: is its frtop of another version?"
    return _NoAnswerError("failed", text)


def _plain_op(op: wire.OpTensors) -> wire.OpTensors:
    return wire.OpTensors(op.sequence, tuple(map(_plain_tensor, op.tensors)), _plain(op.error))


def _plain_tensor(tensor: wire.TensorSummary) -> wire.TensorSummary:
    return msgspec.structs.replace(
        tensor,
        role=_plain(tensor.role),
        dtype=_plain(tensor.dtype),
        device=_plain(tensor.device),
        first=tuple(map(_plain, tensor.first)),
        checksum=_plain(tensor.checksum),
        error=_plain(tensor.error),
    )


def _plain(text: str) -> str:
    """A rank's text goes to terminals: one line of it, and nothing that steers them."""
    return "".join(letter if letter.isprintable() else " " for letter in text[:MAX_TEXT])

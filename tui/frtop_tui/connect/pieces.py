"""Fetches what is too large for one answer, piece by piece.

We request the next piece once one is on disk: neither our memory nor the rank's host ever holds
more than a few.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Protocol

from frtop_probe import wire
from frtop_tui.connect.file_worker import FileWorker
from frtop_tui.connect.request_tracker import RequestTracker
from frtop_tui.job.model import Problem

SMALLEST_PIECE: Final = 64 * 1024
FIRST_PIECE: Final = 256 * 1024
LARGEST_PIECE: Final = 4 * 1024 * 1024
QUICK_NS: Final = 500_000_000
"""After a piece that arrived within this time, we request larger ones; a slow link gets small
pieces, and stays free for other messages."""


@dataclass(frozen=True, slots=True)
class PartWanted:
    """A file or a tensor, or the rest of it from `offset` on."""

    size: int
    request: Callable[[int, int], wire.PieceRequest]
    """Takes an offset and a size; makes the request for these bytes."""
    write: Callable[[bytes, int], object]
    """Takes bytes and their offset; runs in the file worker."""
    offset: int = 0

    def first(self, size: int) -> PartWanted:
        return replace(self, size=min(size, self.size))

    def after(self, size: int) -> PartWanted:
        return replace(self, size=self.size - size, offset=self.offset + size)


class PieceOwner(Protocol):
    """Who wants the parts."""

    def piece_written(self, size: int, now: int) -> None:
        """Notes progress."""

    def pieces_complete(self, now: int) -> None:
        """Continues: all parts are on disk."""

    def pieces_refused(self, text: str, now: int) -> None:
        """Gives up: the rank does not send them."""

    def pieces_unwritten(self, problem: Problem, now: int) -> None:
        """Gives up: they cannot be stored here."""


class Pieces:
    """One download. Belongs to the source's thread; what arrives after its end changes nothing."""

    def __init__(
        self,
        owner: PieceOwner,
        tracker: RequestTracker,
        files: FileWorker,
        parts: Iterable[PartWanted],
        *,
        host: str,
        agent: int,
        window: int,
    ) -> None:
        """`window`: how many pieces may be under way or unwritten; with 1 they come in order."""
        self._owner = owner
        self._tracker = tracker
        self._files = files
        self._host, self._agent, self._window = host, agent, window
        self._todo = deque(part for part in parts if part.size)
        self._under_way: dict[PartWanted, int] = {}
        self._unwritten = 0
        self._size = FIRST_PIECE
        self.over = False

    def go_on(self, now: int) -> None:
        """Requests the next pieces, or reports that all are here."""
        while self._todo and len(self._under_way) + self._unwritten < self._window:
            rest = self._todo.popleft()
            piece = rest.first(self._size)
            if piece.size < rest.size:
                self._todo.appendleft(rest.after(piece.size))
            received = partial(self._received, piece, now)
            self._tracker.request(
                self._host, piece.request(piece.offset, piece.size), received, now,
                agent=self._agent, under_way=self._under_way, about=piece,
            )  # fmt: skip
        if not (self._todo or self._under_way or self._unwritten or self.over):
            self.over = True
            self._owner.pieces_complete(now)

    def stop(self) -> None:
        self.over = True
        self._todo.clear()
        self._tracker.drop(*self._under_way.values())

    def _received(self, piece: PartWanted, sent_ns: int, response: wire.Response, now: int) -> None:
        if self.over:
            return
        if not isinstance(response, wire.Piece) or response.error:
            self.stop()
            self._owner.pieces_refused(_why(response), now)
            return
        data = _unpacked(response, piece)
        if not data:
            self.stop()
            self._owner.pieces_refused("the response does not match the request", now)
            return
        if now - sent_ns < QUICK_NS:
            self._size = min(2 * self._size, LARGEST_PIECE)
        else:
            self._size = max(self._size // 2, SMALLEST_PIECE)
        if len(data) < piece.size:
            self._todo.appendleft(piece.after(len(data)))
        self._unwritten += 1
        write = partial(piece.write, data, piece.offset)
        self._files.submit(write, partial(self._written, len(data)), self._failed)

    def _written(self, size: int, _: object, now: int) -> None:
        if not self.over:
            self._unwritten -= 1
            self._owner.piece_written(size, now)
            self.go_on(now)

    def _failed(self, problem: Problem, now: int) -> None:
        if not self.over:
            self.stop()
            self._owner.pieces_unwritten(problem, now)


def _unpacked(response: wire.Piece, piece: PartWanted) -> bytes:
    """The bytes of a piece; none if it is not what was asked for."""
    if response.offset != piece.offset or not 0 < response.size <= piece.size:
        return b""
    data = response.data
    if response.packed:
        try:
            data = zlib.decompressobj().decompress(data, piece.size + 1)
        except zlib.error:
            return b""
    return data if len(data) == response.size else b""


def _why(response: wire.Response) -> str:
    if isinstance(response, wire.Error):
        return response.text
    if isinstance(response, wire.Piece):
        return response.help or response.error
    return "the agent sent a response of another kind"

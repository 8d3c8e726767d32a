"""What is in the tensors of ops that are pending, told while the job hangs in them.

Nothing is kept alive, copied whole, or taken on trust: between two pieces all is let go.
A pending op may have overwritten part of its tensor already (gloo reduces in place, as far
as its peers have come), which no reader can know.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from copy import copy
from typing import Any, Final

from frtop_probe.recorder.carried import Carried, Held
from frtop_probe.recorder.pending import Pending
from frtop_probe.recorder.placement import GONE, Unread, own
from frtop_probe.recorder.reading import Reader
from frtop_probe.recorder.tally import Tally

BUDGET_S: Final = 1.2
"""For one request, all ops and tensors together."""
MAX_OPS: Final = 16
MAX_FAR_OPS: Final = 4
MAX_TENSORS: Final = 64
"""Per op."""
MAX_DATA: Final = 4 * 1024 * 1024
MAX_PIECE: Final = 256 * 1024
MAX_TEXT: Final = 200
_TRIES: Final = 20
_TRY_S: Final = 0.002

Reply = tuple[dict[str, Any], bytes | bytearray]
"""A header, and raw bytes."""
_UNCLEAR: Final[Reply] = ({"error": "failed", "help": "the request was not understood"}, b"")


class Tensors:
    """Reads on behalf of whoever asks, in the recorder's own thread."""

    def __init__(self, pending: Pending, torch: Any) -> None:
        self._pending = pending
        self._torch = torch
        self._reader: Reader | None = None

    def close(self) -> None:
        """In a forked child: there may be a request of the parent's under way."""
        if self._reader is not None:
            self._reader.close()

    def answer(self, request: Mapping[str, Any], go_on: Callable[[], bool]) -> Reply:
        """Answers a request as it came off the socket: nothing about it is sure.

        `go_on` is called between pieces: false when nobody waits for the answer any more.
        """
        numbers = [request.get(name, 0) for name in ("sequence", "index", "offset", "size")]
        if not all(type(number) is int and 0 <= number < 2**63 for number in numbers):
            return _UNCLEAR
        self._pending.reap()
        reader = self._reader = Reader(self._torch, self._pending, go_on)
        with reader.reading():
            if request.get("ask") == "tensors":
                return self._summaries(reader, numbers[0])
            if request.get("ask") == "data":
                return self._data(reader, *numbers)
        return _UNCLEAR

    def _summaries(self, reader: Reader, sequence: int) -> Reply:
        """All tensors of one op, of the oldest pending ones for 0.

        The header has `ops`, each in the order of the fields of `wire.OpTensors`.
        """
        until = time.monotonic() + BUDGET_S
        chosen = self._chosen(sequence)
        if not chosen:
            ops: list[Any] = [[sequence, [], self._why_none(sequence)]] if sequence else []
            return {"error": "" if sequence else "none", "ops": ops}, b""
        left = sum(min(len(op.tensors), MAX_TENSORS) for op in chosen)
        ops = []
        for op in chosen:
            told = []
            for held in op.tensors[:MAX_TENSORS]:
                now = time.monotonic()
                # What one tensor does not need of its share is there for the others.
                share = now + max(0.0, until - now) / left
                told.append(self._summary(reader, op, held, share))
                left -= 1
            ops.append([op.sequence, told, self._remark(op)])
        return {"ops": ops}, b""

    def _summary(self, reader: Reader, op: Carried, held: Held, until: float) -> list[Any]:
        """In the order of the fields of `wire.TensorSummary`."""
        known: list[Any] = ["", [], "", 0, 0]
        try:
            tensor = own(self._torch, held)
            kind, elements = tensor.dtype, int(tensor.numel())
            known = [
                str(kind).removeprefix("torch.")[:MAX_TEXT],
                [int(length) for length in tensor.shape],
                str(tensor.device)[:MAX_TEXT],
                elements * int(kind.itemsize),
                elements,
            ]
            del tensor
            seen, tally = _tell(reader, op, held, Tally(self._torch, kind), until)
        except Unread as why:
            error = str(why)
        except Exception as failure:  # noqa: BLE001 - a kind of tensor that nobody foresaw
            error = f"could not be read: {type(failure).__name__}: {failure}"[:MAX_TEXT]
        else:
            return [
                *(held.role, *known, seen // kind.itemsize, *tally.statistics),
                *(tally.nans, tally.infinities, tally.first, tally.checksum, tally.error),
            ]
        return [held.role, *known, 0, None, None, None, None, 0, 0, [], "", error]

    def _data(self, reader: Reader, sequence: int, index: int, offset: int, size: int) -> Reply:
        """Bytes of one tensor; in the header `total`, how many it has."""
        op = next(iter(self._chosen(sequence)), None) if sequence else None
        if op is None:
            return {"error": "gone", "help": self._why_none(sequence)}, b""
        if index >= len(op.tensors) or size > MAX_DATA:
            return {"error": "failed", "help": "there is no such tensor, or not so much"}, b""
        held = op.tensors[index]
        try:
            at = reader.place(held, in_order=True)
            found = bytearray(max(0, min(size, at.size - offset)))
            view = memoryview(found)
            for start in range(0, len(view), MAX_PIECE):
                reader.read(op, held, at, offset + start, view[start : start + MAX_PIECE])
                if not reader.go_on():
                    raise Unread(GONE)
            reader.confirm(op)
        except Unread as why:
            return {"error": "gone" if str(why) == GONE else "failed", "help": str(why)}, b""
        return {"total": at.size}, found

    def _chosen(self, sequence: int) -> list[Carried]:
        """The op, for 0 the oldest pending ones; on devices the newest, pending or not."""
        for _ in range(_TRIES if sequence else 1):
            carried = self._pending.carried()
            if not sequence:
                pending = [op for number, op in carried.items() if number in self._pending.open]
                return pending[:MAX_OPS] or list(carried.values())[-MAX_FAR_OPS:]
            if sequence in carried:
                return [carried[sequence]]
            if sequence not in self._pending.open:
                break
            time.sleep(_TRY_S)  # its call is just returning, or its handle is looked at
        return []

    def _why_none(self, sequence: int) -> str:
        if sequence in self._pending.open:
            return "no tensors are known of it: it has none, or its call has not returned yet"
        return "it is not pending any more"

    def _remark(self, op: Carried) -> str:
        if not op.tensors:
            return "it has no tensors"
        if op.sequence not in self._pending.open:
            return "whether it is still pending is not known here"
        more = len(op.tensors) - MAX_TENSORS
        return f"{more} further tensors are not told" if more > 0 else ""


def _tell(reader: Reader, op: Carried, held: Held, tally: Tally, until: float) -> tuple[int, Tally]:
    """Reads a tensor until the time is over; gives the bytes seen, and what they hold.

    Of one that was not read to its end, as of the last power of two: ranks that ran out of
    time at different places can be compared then, mostly.
    """
    at = reader.place(held)
    piece = memoryview(bytearray(min(tally.piece, at.size)))
    told, pieces, seen = (0, tally), 0, 0
    while seen < at.size:
        this = piece[: at.size - seen]
        reader.read(op, held, at, seen, this)
        tally.add(this, begins=seen == 0)
        pieces += 1
        seen += len(this)
        if seen == at.size or not pieces & (pieces - 1):
            told = seen, copy(tally)
        if not reader.go_on() or time.monotonic() > until:
            break
    reader.confirm(op)
    return told

"""Answers requests for the tensors of pending ops, while the job hangs in these ops.

It keeps no tensor alive and copies none as a whole: between two pieces it drops every reference.
A pending op may already have overwritten part of its tensor (gloo reduces in place as its
peers arrive, a kernel may be writing), which a reader cannot detect.
"""

from __future__ import annotations

import time
from copy import copy
from typing import TYPE_CHECKING, Any, Final

from frtop_probe.recorder.feature import RankFeature
from frtop_probe.recorder.ops.pending import PendingOps
from frtop_probe.recorder.ops.tensor_refs import OpTensorRefs, TensorRef
from frtop_probe.recorder.requests.requests import INVALID, GoOn, Request, Response, numbers_of
from frtop_probe.recorder.tensors.device_tensors import TORN, DeviceChunks, DeviceTensors
from frtop_probe.recorder.tensors.memory_reader import MemoryReader
from frtop_probe.recorder.tensors.tensor_memory import GONE, UnreadableTensor, local_tensor
from frtop_probe.recorder.tensors.tensor_stats import TensorStats

if TYPE_CHECKING:
    from frtop_probe.recorder.recorder import Recorder

BUDGET_S: Final = 1.2
"""Time in s for one request, all ops and tensors together."""
MAX_OPS: Final = 16
MAX_DEVICE_OPS: Final = 4
MAX_TENSORS: Final = 64
"""Per op."""
MAX_DATA: Final = 4 * 1024 * 1024
MAX_PIECE: Final = 256 * 1024
MAX_TEXT: Final = 200
_TRIES: Final = 20
_TRY_S: Final = 0.002


class TensorRequests(RankFeature):
    """Reads tensors for requests, in the recorder's own thread."""

    def __init__(self, pending: PendingOps, torch: Any) -> None:
        self._pending = pending
        self._torch = torch
        self._reader: MemoryReader | None = None
        self._devices = DeviceTensors(torch)
        self.handlers = {"SummarizeTensors": self._summarize, "ReadTensor": self._read}

    def beat(self) -> None:
        """Makes the reader of a device, once that is possible."""
        self._devices.prepare(self._pending)

    def joined(self) -> None:
        self._devices.close()

    def abandon_in_child(self) -> None:
        """Closes the reader: the parent may be answering a request."""
        if self._reader is not None:
            self._reader.close()

    def _summarize(self, request: Request, go_on: GoOn) -> Response:
        numbers = numbers_of(request, "sequence")
        if numbers is None:
            return INVALID
        reader = self._new_reader(go_on, devices=request.get("devices") is True)
        with reader.reading():
            return self._summaries(reader, *numbers)

    def _read(self, request: Request, go_on: GoOn) -> Response:
        numbers = numbers_of(request, "sequence", "index", "offset", "size")
        if numbers is None:
            return INVALID
        reader = self._new_reader(go_on, devices=True)
        with reader.reading():
            return self._data(reader, *numbers)

    def _new_reader(self, go_on: GoOn, *, devices: bool) -> MemoryReader:
        self._pending.reap()
        chunks = DeviceChunks(self._torch, self._devices, go_on, asked=devices)
        self._reader = MemoryReader(self._torch, self._pending, chunks, go_on)
        return self._reader

    def _summaries(self, reader: MemoryReader, sequence: int) -> Response:
        """Summarises all tensors of one op; for sequence number 0, those of the oldest pending ops.

        The header has `ops`, each with the fields of `wire.OpTensors`.
        """
        deadline = time.monotonic() + BUDGET_S
        chosen = self._chosen(sequence)
        if not chosen:
            if not sequence:
                return {"error": "none"}, b""
            return {"ops": [{"sequence": sequence, "error": self._why_none(sequence)}]}, b""
        left = sum(min(len(op.tensors), MAX_TENSORS) for op in chosen)
        ops = []
        for op in chosen:
            summaries: list[dict[str, Any]] = []
            for ref in op.tensors[:MAX_TENSORS]:
                now = time.monotonic()
                # Time left over from one tensor goes to the others.
                share = now + max(0.0, deadline - now) / left
                summaries.append(self._summary(reader, op, ref, share))
                left -= 1
            torn = any(summary["device"] != "cpu" and summary["seen"] for summary in summaries)
            remark = self._remark(op, torn=torn)
            ops.append({"sequence": op.sequence, "tensors": summaries, "error": remark})
        return {"ops": ops}, b""

    def _summary(
        self, reader: MemoryReader, op: OpTensorRefs, ref: TensorRef, deadline: float
    ) -> dict[str, Any]:
        """Summarises a tensor, with the fields of `wire.TensorSummary`."""
        known: dict[str, Any] = {
            "role": ref.role, "dtype": "", "shape": [], "device": "", "size": 0, "elements": 0,
        }  # fmt: skip
        try:
            tensor = local_tensor(self._torch, ref)
            kind, elements = tensor.dtype, int(tensor.numel())
            known |= {
                "dtype": str(kind).removeprefix("torch.")[:MAX_TEXT],
                "shape": [int(length) for length in tensor.shape],
                "device": str(tensor.device)[:MAX_TEXT],
                "size": elements * int(kind.itemsize),
                "elements": elements,
            }
            del tensor
            seen, stats = _summarise(reader, op, ref, TensorStats(self._torch, kind), deadline)
        except UnreadableTensor as why:
            error = str(why)
        except Exception as failure:  # noqa: BLE001 - an unexpected kind of tensor
            error = f"could not be read: {type(failure).__name__}: {failure}"[:MAX_TEXT]
        else:
            return {**known, "seen": seen // kind.itemsize, **stats.by_name}
        return {**known, "seen": 0, "error": error}

    def _data(
        self, reader: MemoryReader, sequence: int, index: int, offset: int, size: int
    ) -> Response:
        """Returns bytes of one tensor; `total` in the header is the tensor's size in bytes."""
        op = next(iter(self._chosen(sequence)), None) if sequence else None
        if op is None:
            return {"error": "gone", "help": self._why_none(sequence)}, b""
        if index >= len(op.tensors) or size > MAX_DATA:
            return {"error": "failed", "help": "there is no such tensor, or too many bytes"}, b""
        ref = op.tensors[index]
        try:
            memory = reader.locate(ref, in_order=True)
            found = bytearray(max(0, min(size, memory.size - offset)))
            view = memoryview(found)
            for start in range(0, len(view), MAX_PIECE):
                reader.read(op, ref, memory, offset + start, view[start : start + MAX_PIECE])
                if not reader.go_on():
                    raise UnreadableTensor(GONE)
            reader.confirm(op, memory)
        except UnreadableTensor as why:
            return {"error": "gone" if str(why) == GONE else "failed", "help": str(why)}, b""
        torn = {"help": TORN} if memory.device is not None else {}
        return {"total": memory.size, **torn}, found

    def _chosen(self, sequence: int) -> list[OpTensorRefs]:
        """Returns the op; for 0 the oldest pending ops, or else the newest ops on devices."""
        for _ in range(_TRIES if sequence else 1):
            found = self._pending.tensor_refs().items()
            refs = {number: op for number, op in found if not self._pending.is_complete(number)}
            if not sequence:
                pending = [op for number, op in refs.items() if self._pending.is_open(number)]
                return pending[:MAX_OPS] or list(refs.values())[-MAX_DEVICE_OPS:]
            if sequence in refs:
                return [refs[sequence]]
            if not self._pending.is_open(sequence):
                break
            time.sleep(_TRY_S)  # its call is returning, or another thread tests its handle
        return []

    def _why_none(self, sequence: int) -> str:
        if self._pending.is_open(sequence):
            return "its tensors are unknown: it has none, or its call has not returned yet"
        return "it is no longer pending"

    def _remark(self, op: OpTensorRefs, *, torn: bool) -> str:
        if not op.tensors:
            return "it has no tensors"
        known = self._pending.is_open(op.sequence)
        more = len(op.tensors) - MAX_TENSORS
        remarks = (
            "" if known else "the recorder does not know whether it is still pending",
            TORN if torn else "",
            f"{more} more tensors are not shown" if more > 0 else "",
        )
        return "; ".join(filter(None, remarks))


def attach(recorder: Recorder, torch: Any) -> RankFeature:
    return TensorRequests(recorder.pending, torch)


def _summarise(
    reader: MemoryReader, op: OpTensorRefs, ref: TensorRef, stats: TensorStats, deadline: float
) -> tuple[int, TensorStats]:
    """Reads a tensor until the deadline; returns the number of bytes read, and their statistics.

    If time runs out, the result ends at the last power of two of pieces. So ranks that ran out of
    time at different offsets are usually comparable.
    """
    memory = reader.locate(ref)
    piece = memoryview(bytearray(min(stats.piece, memory.size)))
    result, pieces, seen = (0, stats), 0, 0
    while seen < memory.size:
        this = piece[: memory.size - seen]
        reader.read(op, ref, memory, seen, this)
        stats.add(this, begins=seen == 0)
        pieces += 1
        seen += len(this)
        if seen == memory.size or not pieces & (pieces - 1):
            result = seen, copy(stats)
        if not reader.go_on() or time.monotonic() > deadline:
            break
    reader.confirm(op, memory)
    return result

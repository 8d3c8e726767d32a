"""Ops of gloo: objects of `c10d::Work`, found in a backend's queue or by a Python address.

A work object may be freed while it is read. Every field is checked, and its class by the function
that its vtable has for `getSequencenumber`.
"""

from __future__ import annotations

import struct
from typing import Final

from frtop_probe.proc.memory import NotReadable, ProcessMemory, to_words
from frtop_probe.unprepared import cxx
from frtop_probe.unprepared.model import TensorInfo, Work
from frtop_probe.unprepared.tensors import tensor_of_impl
from frtop_probe.unprepared.torch_layout import TorchLayout

NO_WORK: Final = "op not readable: it could not be validated"

OPS: Final = (
    "broadcast", "allreduce", "allreduce_coalesced", "reduce", "allgather", "allgather_base",
    "allgather_coalesced", "gather", "scatter", "reduce_scatter", "alltoall_base", "alltoall",
    "send", "recv", "recv_anysource", "barrier", "reduce_scatter_base", "coalesced",
    "allreduce_sparse", "reduce_scatter_tensor_coalesced",
)  # fmt: skip
"""c10d::OpType of Work.hpp, in order; 100 is UNKNOWN."""
UNKNOWN_OP: Final = 100
MAX_NUMBER: Final = 1 << 48

_VTABLE_WORDS: Final = 24
"""Virtual functions of Work that are searched; it has 17 in 2.8 and 20 in 2.15."""
_MAX_TENSORS: Final = 16
"""Output tensors that are described. An all_gather has one per member."""
_MAX_LISTS: Final = 4096
_NO_TIMEOUT_S: Final = 10 * 365 * 86_400
_P2P: Final = ("send", "recv", "recv_anysource")


class WorkReader:
    """Reads works of one process; remembers the vtables that it has validated."""

    def __init__(self, memory: ProcessMemory, layout: TorchLayout) -> None:
        """Takes torch's layout in this process."""
        self._memory = memory
        self._layout = layout
        self._number_offsets: dict[int, tuple[int, bool]] = {}

    def read(self, address: int, *, running: bool = True) -> Work:
        """Reads the work at a C++ address.

        Raises:
            NotReadable: it is none of gloo's, or was freed meanwhile.
        """
        layout = self._layout.work
        if layout is None or not cxx.is_pointer(address):
            raise NotReadable(NO_WORK, f"{address:#x}")
        number_at, is_async = self._class_of(self._memory.word(address))
        ends = [number_at + 8, layout.op + 1]
        if is_async and layout.timeout is not None:
            ends.append(layout.timeout + 8 + cxx.VECTOR)
        raw = self._memory.read(address, max(ends))
        op, completed = raw[layout.op], raw[layout.completed]
        (number,) = struct.unpack_from("<Q", raw, number_at)
        name = OPS[op] if op < len(OPS) else "unknown"
        if completed > 1 or number > MAX_NUMBER or (name == "unknown" and op != UNKNOWN_OP):
            raise NotReadable(NO_WORK, f"{op} {completed} {number}")
        timeout, outputs = None, None
        if is_async and layout.timeout is not None:
            timeout = seconds_of(struct.unpack_from("<q", raw, layout.timeout)[0])
            outputs = self._outputs(to_words(raw[layout.timeout + 8 :][: cxx.VECTOR]))
        return Work(name, number, bool(completed), timeout, outputs, running)

    def _class_of(self, vtable: int) -> tuple[int, bool]:
        """Returns the offset of the number, and whether this is an AsyncWork."""
        known = self._number_offsets.get(vtable)
        if known is not None:
            return known
        if not any(image.contains(vtable) for image in self._layout.libraries.values()):
            raise NotReadable(NO_WORK, "vtable")
        assert self._layout.work is not None
        numbers = self._layout.work.numbers
        for function in self._memory.words(vtable, _VTABLE_WORDS):
            if function in numbers:
                found = numbers[function], function == self._layout.async_number
                self._number_offsets[vtable] = found
                return found
        raise NotReadable(NO_WORK, "class")

    def _outputs(self, words: tuple[int, ...]) -> tuple[TensorInfo, ...] | None:
        """Reads a std::vector<std::vector<at::Tensor>>; None when one cannot be validated."""
        found: list[TensorInfo] = []
        try:
            begin, count = cxx.vector(words, cxx.VECTOR, _MAX_LISTS)
            for place in range(min(count, _MAX_TENSORS)):
                inner = self._memory.words(begin + place * cxx.VECTOR, 3)
                first, tensors = cxx.vector(inner, 8, _MAX_LISTS)
                for impl in self._memory.words(first, tensors) if tensors else ():
                    if len(found) < _MAX_TENSORS:
                        found.append(tensor_of_impl(self._memory, impl))
        except NotReadable:
            return None
        return tuple(found)


def seconds_of(milliseconds: int) -> float | None:
    """Returns a timeout in seconds; None for a value that means "none"."""
    seconds = milliseconds / 1000
    return seconds if 0 < seconds < _NO_TIMEOUT_S else None

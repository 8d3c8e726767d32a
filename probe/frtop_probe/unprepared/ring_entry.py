"""One entry of the Flight Recorder's ring: where its fields are, and which values they may have.

Source: torch/csrc/distributed/c10d/FlightRecorder.hpp.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from frtop_probe.proc.memory import NotReadable, ProcessMemory, to_words
from frtop_probe.unprepared import cxx
from frtop_probe.unprepared.model import RingEntry
from frtop_probe.unprepared.recorded_lines import RecordedLines, Site
from frtop_probe.unprepared.tensors import dtype_name

UNKNOWN_RING: Final = "ring not readable: an unknown layout of the Flight Recorder"
MAX_ID: Final = 1 << 48
_MIN_TIME_NS: Final = 1_500_000_000 * 10**9
"""Wall clock of 2017: no entry is older."""
_MAX_TIME_NS: Final = 4_000_000_000 * 10**9
_MAX_DIMENSIONS: Final = 25
_MAX_TENSORS: Final = 4096


@dataclass(frozen=True, slots=True)
class EntryLayout:
    """Offsets within an entry, in bytes. From 2.9 on a `reset_epoch_` follows the id.

    Attributes:
        shift: Bytes of `reset_epoch_`: 8 or 0. All other fields move with it.
    """

    shift: int

    # id_ 8, (reset_epoch_ 8), pg_id_ 8, pg_name_: a tuple, whose last string comes first.
    @property
    def description(self) -> int:
        """Returns where the group's description is; its name follows."""
        return 16 + self.shift

    @property
    def name(self) -> int:
        """Returns where the group's name is."""
        return self.description + cxx.STRING

    @property
    def numbers(self) -> int:
        """Returns where collective_seq_id_, p2p_seq_id_ and op_id_ are."""
        return self.name + cxx.STRING

    @property
    def op(self) -> int:
        """Returns where profiling_name_ is; traceback_ 16, start_ 8 and end_ 8 follow."""
        return self.numbers + 24

    @property
    def traceback(self) -> int:
        """Returns where traceback_ is, a shared_ptr."""
        return self.op + cxx.STRING

    @property
    def times(self) -> int:
        """Returns where time_created_ and timeout_ms_ are.

        Then follow isP2P_ (to 4), duration_ (8), to 8; two optional times of 16 bytes each.
        """
        return self.op + cxx.STRING + 32

    @property
    def inputs(self) -> int:
        """Returns where input_dims_ is: SmallVector<int64_t, 4>, then a vector of dtypes."""
        return self.times + 16 + 16 + 32

    @property
    def input_types(self) -> int:
        """Returns where input_dtypes_ is, a vector."""
        return self.inputs + _SMALL_VECTOR + 4 * 8

    @property
    def output_types(self) -> int:
        """Returns where output_dtypes_ is, a vector."""
        return self.outputs + _SMALL_VECTOR + 4 * 8

    @property
    def outputs(self) -> int:
        """Returns where output_dims_ is, followed by a vector of dtypes, too."""
        return self.inputs + _SMALL_VECTOR + 4 * 8 + cxx.VECTOR

    @property
    def sizes(self) -> int:
        """Returns where sizes_ is: SmallVector<int64_t, 8>."""
        return self.outputs + _SMALL_VECTOR + 4 * 8 + cxx.VECTOR

    @property
    def thread(self) -> int:
        """Returns where thread_name_ is; thread_id_ comes before."""
        return self.sizes + _SMALL_VECTOR + 8 * 8 + 8

    @property
    def retired(self) -> int:
        """Returns where retired_ is."""
        return self.thread + cxx.STRING

    @property
    def end(self) -> int:
        """Returns the size of an entry."""
        return self.retired + 8


_SMALL_VECTOR: Final = 16  # c10/util/SmallVector.h: begin 8, size 4, capacity 4, then items
LAYOUTS: Final = (EntryLayout(8), EntryLayout(0))


class EntryReader:
    """Reads entries of one process."""

    def __init__(self, memory: ProcessMemory, sites: RecordedLines | None) -> None:
        """Takes the memory that strings and sizes are read from, and a reader of lines."""
        self._memory = memory
        self._sites = sites

    def start_look(self) -> None:
        """Forgets what may have changed since the last look."""
        if self._sites is not None:
            self._sites.start_look()

    def read(self, raw: bytes, address: int, layout: EntryLayout) -> RingEntry:
        """Reads one entry.

        Args:
            raw: its bytes.
            address: where they were read.
            layout: where the fields are.

        Raises:
            NotReadable: a field has a value that it cannot have.
        """
        (entry_id,) = to_words(raw[:8])
        number, p2p_number, op_id = struct.unpack_from("<3Q", raw, layout.numbers)
        created, timeout = struct.unpack_from("<2q", raw, layout.times)
        is_p2p, retired = raw[layout.times + 16], raw[layout.retired]
        if max(entry_id, number, p2p_number, op_id) > MAX_ID or is_p2p > 1 or retired > 1:
            raise NotReadable(UNKNOWN_RING, "numbers")
        if not _MIN_TIME_NS < created < _MAX_TIME_NS:
            raise NotReadable(UNKNOWN_RING, "time")
        inputs, outputs = self._shapes(raw, address, layout)
        return RingEntry(
            id=entry_id,
            group=self._string(raw, address, layout.name),
            description=self._string(raw, address, layout.description),
            number=number,
            p2p_number=p2p_number,
            op_id=op_id,
            op=self._string(raw, address, layout.op),
            is_p2p=bool(is_p2p),
            inputs=inputs,
            outputs=outputs,
            created_ns=created,
            started_ns=_optional_time(raw, layout.times + 32),
            completed_ns=_optional_time(raw, layout.times + 48),
            timeout_ms=timeout,
            retired=bool(retired),
            thread=self._string(raw, address, layout.thread),
            thread_ident=to_words(raw[layout.thread - 8 : layout.thread])[0],
            input_types=self._types(raw, layout.input_types, len(inputs)),
            output_types=self._types(raw, layout.output_types, len(outputs)),
            site=self._site(raw, layout),
        )

    def _string(self, raw: bytes, address: int, at: int) -> str:
        return cxx.string(self._memory, address + at, raw[at : at + cxx.STRING])

    def _shapes(
        self, raw: bytes, address: int, layout: EntryLayout
    ) -> tuple[tuple[tuple[int, ...], ...], tuple[tuple[int, ...], ...]]:
        counts_in = self._small_vector(raw, address, layout.inputs, 4)
        counts_out = self._small_vector(raw, address, layout.outputs, 4)
        sizes = self._small_vector(raw, address, layout.sizes, 8)
        if any(not 0 <= count <= _MAX_DIMENSIONS for count in (*counts_in, *counts_out)):
            raise NotReadable(UNKNOWN_RING, "dimensions")
        if sum(counts_in) + sum(counts_out) != len(sizes):
            raise NotReadable(UNKNOWN_RING, "sizes")
        rest = iter(sizes)
        shapes = [tuple(next(rest) for _ in range(count)) for count in (*counts_in, *counts_out)]
        return tuple(shapes[: len(counts_in)]), tuple(shapes[len(counts_in) :])

    def _site(self, raw: bytes, layout: EntryLayout) -> Site | None:
        if self._sites is None:
            return None
        return self._sites.of(to_words(raw[layout.traceback : layout.traceback + 8])[0])

    def _types(self, raw: bytes, at: int, count: int) -> tuple[str, ...] | None:
        """Reads a std::vector of c10::ScalarType, one byte each; None unless one per tensor."""
        begin, number = cxx.vector(to_words(raw[at : at + cxx.VECTOR]), 1, _MAX_TENSORS)
        if number != count:
            return None
        return tuple(map(dtype_name, self._memory.read(begin, number))) if number else ()

    def _small_vector(self, raw: bytes, address: int, at: int, inline: int) -> tuple[int, ...]:
        begin, size, capacity = struct.unpack_from("<QII", raw, at)
        if size > capacity or size > _MAX_TENSORS * _MAX_DIMENSIONS:
            raise NotReadable(UNKNOWN_RING, "vector")
        if begin == address + at + _SMALL_VECTOR:
            if capacity != inline:
                raise NotReadable(UNKNOWN_RING, "vector")
            return struct.unpack_from(f"<{size}q", raw, at + _SMALL_VECTOR)
        if capacity <= inline or not cxx.is_pointer(begin):
            raise NotReadable(UNKNOWN_RING, "vector")
        return struct.unpack(f"<{size}q", self._memory.read(begin, 8 * size))


def _optional_time(raw: bytes, at: int) -> int:
    """Reads a std::optional of a time in nanoseconds: 0 when it has none."""
    value, given = struct.unpack_from("<qB", raw, at)
    if given > 1:
        raise NotReadable(UNKNOWN_RING, "optional")
    if given and not _MIN_TIME_NS < value < _MAX_TIME_NS:
        raise NotReadable(UNKNOWN_RING, "time")
    return int(value) if given else 0

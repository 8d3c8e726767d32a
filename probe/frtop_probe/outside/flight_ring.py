"""The Flight Recorder's ring, read from outside.

Its instance is a static inside a function, so its symbol is local: `static_symbols`. The layout of
an entry differs between releases: the size of an entry is the one at which all ids follow each
other, and its fields are accepted only if every string, and every SmallVector that points into
itself, is where it should be. Source: torch/csrc/distributed/c10d/FlightRecorder.hpp.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from frtop_probe.outside import cxx
from frtop_probe.outside.elf import Image
from frtop_probe.outside.memory import NotReadable, ProcessMemory, to_words
from frtop_probe.outside.model import FlightRing, RingEntry
from frtop_probe.outside.static_symbols import StaticSymbols
from frtop_probe.outside.torch_layout import NO_TORCH, TorchLayout

UNKNOWN_RING: Final = "ring not readable: an unknown layout of the Flight Recorder"
NO_RING: Final = "no Flight Recorder in this process yet"
MOVED: Final = "ring not readable: it moved while it was read"
OFF: Final = "the Flight Recorder is off"

INSTANCES: Final = {
    "gloo": ("_ZZN4c10d14FlightRecorderIN3c105EventEE3getEvE8instance",),
    "nccl": (
        "_ZZN4c10d14FlightRecorderIN2at4cuda9CUDAEventEE3getEvE8instance",
        "_ZZN4c10d14FlightRecorderIN3c104cuda9CUDAEventEE3getEvE8instance",  # from 2.15 on
    ),
}
"""`instance` of `FlightRecorder<EventType>::get()`: gloo's has c10::Event, NCCL's CUDAEvent."""
_LIBRARY: Final = {"gloo": "libtorch_cpu.so", "nccl": "libtorch_cuda.so"}

# FlightRecorder: two bools, to 8; mutex_; entries_ (vector); max_entries_, next_, id_, and from 2.9
# on reset_epoch_.
_MUTEX_AT: Final = 8
_STRIDES: Final = range(384, 1025, 8)
_MAX_ENTRIES: Final = 1 << 20
_MAX_ID: Final = 1 << 48
_MAX_WORDS: Final = _MAX_ENTRIES * max(_STRIDES) // 8
_TRIES: Final = 3
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
_LAYOUTS: Final = (EntryLayout(8), EntryLayout(0))


@dataclass(frozen=True, slots=True)
class _Header:
    """Of the recorder: entries from `begin` to `end`; `next` is written next; `id` is its id.

    `epoch` is reset_epoch_ where there is one; a reset starts ids from 0, and leaves older entries.
    """

    begin: int
    end: int
    capacity: int
    next: int
    id: int
    epoch: int


class RingReader:
    """Reads the rings of one process: gloo's, and NCCL's where there is one."""

    def __init__(
        self, memory: ProcessMemory, layout: TorchLayout, symbols: StaticSymbols, proc: Path
    ) -> None:
        """Reads nothing yet."""
        self._memory = memory
        self._libraries = layout.libraries
        self._mutex = layout.mutex
        self._symbols = symbols
        self._proc = proc
        self._statics: dict[str, int] = {}
        self._layouts: dict[str, tuple[int, EntryLayout]] = {}

    def read(self, limit: int | None = None, kinds: Collection[str] = ()) -> tuple[FlightRing, ...]:
        """Reads the newest entries of each ring; a ring that is not readable says why.

        Args:
            limit: Entries per ring at most; None for all.
            kinds: Kinds of ring to read; empty for all that there are libraries for.

        Raises:
            NotReadable: there is no library of torch that may have a ring.
        """
        found = [kind for kind, library in _LIBRARY.items() if library in self._libraries]
        if not found:
            raise NotReadable(NO_TORCH)
        return tuple(self._read_one(kind, limit) for kind in found if not kinds or kind in kinds)

    def _read_one(self, kind: str, limit: int | None) -> FlightRing:
        reason = ""
        for _ in range(_TRIES):
            try:
                return self._ring(kind, limit)
            except NotReadable as error:
                reason = error.reason
                if reason not in (MOVED, UNKNOWN_RING):
                    break
        return FlightRing(kind, 0, 0, reason=reason)

    def _ring(self, kind: str, limit: int | None) -> FlightRing:
        recorder = self._memory.word(self._static(kind))
        if not recorder:
            raise NotReadable(NO_RING)
        header = self._header(recorder)
        if not header.capacity:
            raise NotReadable(OFF)
        if header.begin == header.end:
            return FlightRing(kind, header.capacity, header.id)
        if kind not in self._layouts:
            self._layouts[kind] = self._calibrate(header)
        stride, layout = self._layouts[kind]
        if (header.end - header.begin) % stride:
            raise NotReadable(UNKNOWN_RING, "size")
        return self._stable(kind, recorder, stride, layout, limit)

    def _static(self, kind: str) -> int:
        if kind not in self._statics:
            image = self._libraries[_LIBRARY[kind]]
            self._statics[kind] = self._look_up(image, INSTANCES[kind])
        return self._statics[kind]

    def _look_up(self, image: Image, names: Sequence[str]) -> int:
        for name in names[:-1]:
            try:
                return self._symbols.address_of(self._memory.pid, image, name, self._proc)
            except NotReadable:
                continue
        return self._symbols.address_of(self._memory.pid, image, names[-1], self._proc)

    def _header(self, recorder: int) -> _Header:
        words = self._memory.words(recorder + _MUTEX_AT + self._mutex, 7)
        begin, end = words[:2]
        header = _Header(begin, end, *words[3:])
        cxx.vector(words[:3], 8, _MAX_WORDS)
        if header.capacity > _MAX_ENTRIES or header.next > header.capacity or header.id > _MAX_ID:
            raise NotReadable(UNKNOWN_RING, "header")
        return header

    def _calibrate(self, header: _Header) -> tuple[int, EntryLayout]:
        """Finds the size of an entry, and which of the layouts fits the newest."""
        total = header.end - header.begin
        for stride in _STRIDES:
            count = total // stride
            if total % stride or not count <= header.capacity:
                continue
            if not self._ids_follow(header.begin, stride, count):
                continue
            last = (header.next - 1) % count
            address = header.begin + last * stride
            raw = self._memory.read(address, stride)
            for layout in _LAYOUTS:
                if layout.end <= stride and self._fits(raw, address, layout):
                    return stride, layout
        raise NotReadable(UNKNOWN_RING, f"{total} bytes")

    def _ids_follow(self, begin: int, stride: int, count: int) -> bool:
        """Tells whether neighbours have neighbouring ids, at a few places of the ring."""
        for place in {0, count // 3, 2 * count // 3, max(count - 2, 0)}:
            here = self._memory.word(begin + place * stride)
            if here > _MAX_ID:
                return False
            if place + 1 < count:
                there = self._memory.word(begin + (place + 1) * stride)
                # The oldest follows the newest, and a reset starts from 0.
                if there not in (here + 1, 0) and not abs(there - here) >= count - 2:
                    return False
        return True

    def _fits(self, raw: bytes, address: int, layout: EntryLayout) -> bool:
        try:
            entry = self._entry(raw, address, layout)
        except NotReadable:
            return False
        return bool(entry.op) and entry.inputs is not None and entry.outputs is not None

    def _stable(
        self, kind: str, recorder: int, stride: int, layout: EntryLayout, limit: int | None
    ) -> FlightRing:
        """Reads entries; those that were written meanwhile are read again."""
        first = self._header(recorder)
        count = (first.end - first.begin) // stride
        wanted = set(_newest(first.next, count, limit))
        entries: dict[int, RingEntry] = {}
        older: set[int] = set()
        for _ in range(_TRIES):
            before = self._header(recorder)
            read: dict[int, RingEntry] = {}
            for slot, raw in self._slots(first.begin, stride, wanted):
                if layout.shift and to_words(raw[8:16])[0] != first.epoch:
                    older.add(slot)  # recorded before a reset
                    continue
                try:
                    read[slot] = self._entry(raw, first.begin + slot * stride, layout)
                except NotReadable:  # torn, or freed strings
                    continue
            after = self._header(recorder)
            if (after.begin, after.epoch) != (first.begin, first.epoch):
                raise NotReadable(MOVED)
            moved = _written(before, after)
            entries.update((slot, entry) for slot, entry in read.items() if slot not in moved)
            wanted = {slot for slot in wanted - older if slot not in entries}
            if not wanted:
                break
        ordered = sorted(entries.values(), key=lambda entry: entry.id)
        gaps = ordered[-1].id - ordered[0].id + 1 - len(ordered) if ordered else 0
        if gaps < 0:  # the same id twice
            raise NotReadable(UNKNOWN_RING, "ids")
        return FlightRing(kind, first.capacity, first.id, tuple(ordered), max(len(wanted), gaps))

    def _slots(self, begin: int, stride: int, slots: set[int]) -> list[tuple[int, bytes]]:
        """Reads slots, neighbours in one read."""
        found: list[tuple[int, bytes]] = []
        ordered = sorted(slots)
        most = max(1, (8 << 20) // stride)
        while ordered:
            run = 1
            while run < min(len(ordered), most) and ordered[run] == ordered[0] + run:
                run += 1
            raw = self._memory.read(begin + ordered[0] * stride, run * stride)
            found += [(ordered[i], raw[i * stride : (i + 1) * stride]) for i in range(run)]
            ordered = ordered[run:]
        return found

    def _entry(self, raw: bytes, address: int, layout: EntryLayout) -> RingEntry:
        number, p2p_number, op_id = struct.unpack_from("<3Q", raw, layout.numbers)
        created, timeout = struct.unpack_from("<2q", raw, layout.times)
        is_p2p, retired = raw[layout.times + 16], raw[layout.retired]
        if max(number, p2p_number, op_id) > _MAX_ID or is_p2p > 1 or retired > 1:
            raise NotReadable(UNKNOWN_RING, "numbers")
        if not _MIN_TIME_NS < created < _MAX_TIME_NS:
            raise NotReadable(UNKNOWN_RING, "time")
        inputs, outputs = self._shapes(raw, address, layout)
        return RingEntry(
            id=to_words(raw[:8])[0],
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


def _newest(next_slot: int, count: int, limit: int | None) -> list[int]:
    """Returns the slots of the newest entries, at most `limit`."""
    number = count if limit is None else min(limit, count)
    return [(next_slot - 1 - back) % count for back in range(number)]


def _written(before: _Header, after: _Header) -> set[int]:
    """Returns the slots that may have been written between two headers, the next one included.

    An entry is put into its slot before the id is counted.
    """
    steps = after.id - before.id
    if steps == 0:
        return set()
    if not 0 < steps < before.capacity:
        return set(range(before.capacity))
    return {(before.next + step) % before.capacity for step in range(steps + 1)}


def _optional_time(raw: bytes, at: int) -> int:
    """Reads a std::optional of a time in nanoseconds: 0 when it has none."""
    value, given = struct.unpack_from("<qB", raw, at)
    if given > 1:
        raise NotReadable(UNKNOWN_RING, "optional")
    if given and not _MIN_TIME_NS < value < _MAX_TIME_NS:
        raise NotReadable(UNKNOWN_RING, "time")
    return int(value) if given else 0

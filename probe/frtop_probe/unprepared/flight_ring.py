"""Reads the Flight Recorder's ring from outside.

The instance is a static inside a function, so its symbol is local: `static_symbols`. Releases
differ in the layout of an entry. An entry's size is the one that makes all ids consecutive; its
fields are valid only if each string, and each SmallVector that points into itself, is in its place.
Source: torch/csrc/distributed/c10d/FlightRecorder.hpp.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from frtop_probe.proc.memory import NotReadable, ProcessMemory, to_words
from frtop_probe.unprepared import cxx
from frtop_probe.unprepared.elf import Image
from frtop_probe.unprepared.flight_settings import OFF
from frtop_probe.unprepared.model import FlightRing, RingEntry
from frtop_probe.unprepared.recorded_lines import RecordedLines, Site
from frtop_probe.unprepared.static_symbols import StaticSymbols
from frtop_probe.unprepared.tensors import dtype_name
from frtop_probe.unprepared.torch_layout import NO_TORCH, TorchLayout

NO_RING: Final = "no Flight Recorder in this process yet"
MOVED: Final = "ring not readable: it moved during the read"
UNKNOWN_RING: Final = "ring not readable: an unknown layout of the Flight Recorder"

INSTANCES: Final = {
    "gloo": ("_ZZN4c10d14FlightRecorderIN3c105EventEE3getEvE8instance",),
    "nccl": (
        "_ZZN4c10d14FlightRecorderIN2at4cuda9CUDAEventEE3getEvE8instance",
        "_ZZN4c10d14FlightRecorderIN3c104cuda9CUDAEventEE3getEvE8instance",  # later torch
    ),
}
"""`instance` of `FlightRecorder<EventType>::get()`: gloo's has c10::Event, NCCL's CUDAEvent."""
_LIBRARY: Final = {"gloo": "libtorch_cpu.so", "nccl": "libtorch_cuda.so"}

# FlightRecorder: two bools, padded to 8; mutex_; entries_ (vector); max_entries_, next_, id_, and
# since 2.9 reset_epoch_.
_MUTEX_AT: Final = 8
_STRIDES: Final = range(384, 1025, 8)
_MAX_ENTRIES: Final = 1 << 20
_MAX_WORDS: Final = _MAX_ENTRIES * max(_STRIDES) // 8
_TRIES: Final = 3
_FROM_THE_FIRST: Final[Mapping[str, int]] = {}

# An entry, from pg_id_: id_ comes first, and since 2.9 reset_epoch_, which shifts all others.
_SHIFTS: Final = (8, 0)
_SMALL_VECTOR: Final = 16  # c10/util/SmallVector.h: begin 8, size 4, capacity 4, then items
_DESCRIPTION: Final = 16  # the strings of pg_name_, a tuple: its last one comes first
_NAME: Final = _DESCRIPTION + cxx.STRING
_NUMBERS: Final = _NAME + cxx.STRING  # collective_seq_id_, p2p_seq_id_, op_id_
_OP: Final = _NUMBERS + 24  # profiling_name_
_TRACEBACK: Final = _OP + cxx.STRING  # shared_ptr 16; start_ 8, end_ 8
_CREATED: Final = _TRACEBACK + 32  # time_created_, timeout_ms_
_IS_P2P: Final = _CREATED + 16  # to 4; duration_ 8; to 8
_STARTED: Final = _IS_P2P + 16  # std::optional<int64_t>
_COMPLETED: Final = _STARTED + 16  # likewise
_INPUTS: Final = _COMPLETED + 16  # SmallVector<int64_t, 4>
_INPUT_TYPES: Final = _INPUTS + _SMALL_VECTOR + 4 * 8  # a vector
_OUTPUTS: Final = _INPUT_TYPES + cxx.VECTOR
_OUTPUT_TYPES: Final = _OUTPUTS + _SMALL_VECTOR + 4 * 8
_SIZES: Final = _OUTPUT_TYPES + cxx.VECTOR  # SmallVector<int64_t, 8>
_THREAD_IDENT: Final = _SIZES + _SMALL_VECTOR + 8 * 8
_THREAD: Final = _THREAD_IDENT + 8
_RETIRED: Final = _THREAD + cxx.STRING
_ENTRY_END: Final = _RETIRED + 8
_MAX_ID: Final = 1 << 48
_MIN_TIME_NS: Final = 1_500_000_000 * 10**9
"""2017 as Unix time: no entry is older."""
_MAX_TIME_NS: Final = 4_000_000_000 * 10**9
_MAX_DIMENSIONS: Final = 25
_MAX_TENSORS: Final = 4096


@dataclass(frozen=True, slots=True)
class _Header:
    """The recorder's fields: entries from `begin` to `end`, the next slot to write, and its id.

    `epoch` is reset_epoch_ if there is one. A reset restarts ids from 0 and leaves older entries.
    """

    begin: int
    end: int
    capacity: int
    next: int
    id: int
    epoch: int


class RingReader:
    """Reads the rings of one process: gloo's, and NCCL's if there is one."""

    def __init__(
        self,
        memory: ProcessMemory,
        layout: TorchLayout,
        symbols: StaticSymbols,
        sites: RecordedLines | None,
    ) -> None:
        """Without `sites`, entries have no lines."""
        self._memory = memory
        self._libraries = layout.libraries
        self._mutex = layout.mutex
        self._symbols = symbols
        self._sites = sites
        self._statics: dict[str, int] = {}
        self._layouts: dict[str, tuple[int, int]] = {}

    def read(
        self,
        limit: int | None = None,
        kinds: Collection[str] = (),
        since: Mapping[str, int] = _FROM_THE_FIRST,
    ) -> tuple[FlightRing, ...]:
        """Reads the newest entries of each ring; an unreadable ring says why.

        Args:
            limit: Most entries per ring; None for all.
            kinds: Kinds of ring to read; empty for all whose libraries are loaded.
            since: By kind, the id of the first entry to read.

        Raises:
            NotReadable: No torch library that may have a ring is loaded.
        """
        found = [kind for kind, library in _LIBRARY.items() if library in self._libraries]
        if not found:
            raise NotReadable(NO_TORCH)
        if self._sites is not None:
            self._sites.start_look()
        wanted = [kind for kind in found if not kinds or kind in kinds]
        return tuple(self._read_one(kind, limit, since.get(kind, 0)) for kind in wanted)

    def _read_one(self, kind: str, limit: int | None, since: int) -> FlightRing:
        reason = ""
        for _ in range(_TRIES):
            try:
                return self._ring(kind, limit, since)
            except NotReadable as error:
                reason = error.reason
                if reason not in (MOVED, UNKNOWN_RING):
                    break
        return FlightRing(kind, 0, 0, reason=reason)

    def _ring(self, kind: str, limit: int | None, since: int) -> FlightRing:
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
        stride, shift = self._layouts[kind]
        if (header.end - header.begin) % stride:
            raise NotReadable(UNKNOWN_RING, "size")
        if 0 < since <= header.id:  # a reset restarts ids
            fresh = header.id - since
            limit = fresh if limit is None else min(limit, fresh)
        return self._stable(kind, recorder, stride, shift, limit)

    def _static(self, kind: str) -> int:
        if kind not in self._statics:
            image = self._libraries[_LIBRARY[kind]]
            self._statics[kind] = self._look_up(image, INSTANCES[kind])
        return self._statics[kind]

    def _look_up(self, image: Image, names: Sequence[str]) -> int:
        for name in names[:-1]:
            try:
                return self._symbols.address_of(self._memory.pid, image, name)
            except NotReadable:
                continue
        return self._symbols.address_of(self._memory.pid, image, names[-1])

    def _header(self, recorder: int) -> _Header:
        words = self._memory.words(recorder + _MUTEX_AT + self._mutex, 7)
        begin, end = words[:2]
        header = _Header(begin, end, *words[3:])
        cxx.vector(words[:3], 8, _MAX_WORDS)
        if header.capacity > _MAX_ENTRIES or header.next > header.capacity or header.id > _MAX_ID:
            raise NotReadable(UNKNOWN_RING, "header")
        return header

    def _calibrate(self, header: _Header) -> tuple[int, int]:
        """Finds the size of an entry, and the shift that fits the newest entry."""
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
            for shift in _SHIFTS:
                if _ENTRY_END + shift <= stride and self._fits(raw, address, shift):
                    return stride, shift
        raise NotReadable(UNKNOWN_RING, f"{total} bytes")

    def _ids_follow(self, begin: int, stride: int, count: int) -> bool:
        """Returns whether neighbours have consecutive ids, at a few places in the ring."""
        for place in {0, count // 3, 2 * count // 3, max(count - 2, 0)}:
            here = self._memory.word(begin + place * stride)
            if here > _MAX_ID:
                return False
            if place + 1 < count:
                there = self._memory.word(begin + (place + 1) * stride)
                # The oldest entry follows the newest, and a reset starts from 0.
                if there not in (here + 1, 0) and not abs(there - here) >= count - 2:
                    return False
        return True

    def _fits(self, raw: bytes, address: int, shift: int) -> bool:
        try:
            return bool(self._entry(raw, address, shift).op)
        except NotReadable:
            return False

    def _stable(
        self, kind: str, recorder: int, stride: int, shift: int, limit: int | None
    ) -> FlightRing:
        """Reads entries; rereads those that the rank has written since."""
        first = self._header(recorder)
        count = (first.end - first.begin) // stride
        wanted = set(_newest(first.next, count, limit))
        entries: dict[int, RingEntry] = {}
        older: set[int] = set()
        for _ in range(_TRIES):
            before = self._header(recorder)
            read: dict[int, RingEntry] = {}
            for slot, raw in self._slots(first.begin, stride, wanted):
                if shift and to_words(raw[8:16])[0] != first.epoch:
                    older.add(slot)  # recorded before a reset
                    continue
                try:
                    read[slot] = self._entry(raw, first.begin + slot * stride, shift)
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
        """Reads slots; reads neighbours together."""
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

    def _entry(self, raw: bytes, address: int, shift: int) -> RingEntry:
        """Reads one entry from its bytes.

        Raises:
            NotReadable: A field has an impossible value.
        """
        (entry_id,) = to_words(raw[:8])
        raw, address = raw[shift:], address + shift
        number, p2p_number, op_id = struct.unpack_from("<3Q", raw, _NUMBERS)
        created, timeout = struct.unpack_from("<2q", raw, _CREATED)
        is_p2p, retired = raw[_IS_P2P], raw[_RETIRED]
        if max(entry_id, number, p2p_number, op_id) > _MAX_ID or is_p2p > 1 or retired > 1:
            raise NotReadable(UNKNOWN_RING, "numbers")
        if not _MIN_TIME_NS < created < _MAX_TIME_NS:
            raise NotReadable(UNKNOWN_RING, "time")
        inputs, outputs = self._shapes(raw, address)
        return RingEntry(
            id=entry_id,
            group=self._string(raw, address, _NAME),
            description=self._string(raw, address, _DESCRIPTION),
            number=number,
            p2p_number=p2p_number,
            op_id=op_id,
            op=self._string(raw, address, _OP),
            is_p2p=bool(is_p2p),
            inputs=inputs,
            outputs=outputs,
            created_ns=created,
            started_ns=_optional_time(raw, _STARTED),
            completed_ns=_optional_time(raw, _COMPLETED),
            timeout_ms=timeout,
            retired=bool(retired),
            thread=self._string(raw, address, _THREAD),
            thread_ident=to_words(raw[_THREAD_IDENT:_THREAD])[0],
            input_types=self._types(raw, _INPUT_TYPES, len(inputs)),
            output_types=self._types(raw, _OUTPUT_TYPES, len(outputs)),
            site=self._site(raw),
        )

    def _string(self, raw: bytes, address: int, at: int) -> str:
        return cxx.string(self._memory, address + at, raw[at : at + cxx.STRING])

    def _shapes(
        self, raw: bytes, address: int
    ) -> tuple[tuple[tuple[int, ...], ...], tuple[tuple[int, ...], ...]]:
        counts_in = self._small_vector(raw, address, _INPUTS, 4)
        counts_out = self._small_vector(raw, address, _OUTPUTS, 4)
        sizes = self._small_vector(raw, address, _SIZES, 8)
        if any(not 0 <= count <= _MAX_DIMENSIONS for count in (*counts_in, *counts_out)):
            raise NotReadable(UNKNOWN_RING, "dimensions")
        if sum(counts_in) + sum(counts_out) != len(sizes):
            raise NotReadable(UNKNOWN_RING, "sizes")
        rest = iter(sizes)
        shapes = [tuple(next(rest) for _ in range(count)) for count in (*counts_in, *counts_out)]
        return tuple(shapes[: len(counts_in)]), tuple(shapes[len(counts_in) :])

    def _site(self, raw: bytes) -> Site | None:
        if self._sites is None:
            return None
        return self._sites.of(to_words(raw[_TRACEBACK : _TRACEBACK + 8])[0])

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


def _newest(next_slot: int, count: int, limit: int | None) -> list[int]:
    """Returns the slots of the newest entries, at most `limit`."""
    number = count if limit is None else min(limit, count)
    return [(next_slot - 1 - back) % count for back in range(number)]


def _written(before: _Header, after: _Header) -> set[int]:
    """Returns the slots that the rank may have written between two headers, and the next slot.

    The rank fills a slot before it counts the id.
    """
    steps = after.id - before.id
    if steps == 0:
        return set()
    if not 0 < steps < before.capacity:
        return set(range(before.capacity))
    return {(before.next + step) % before.capacity for step in range(steps + 1)}


def _optional_time(raw: bytes, at: int) -> int:
    """Reads a std::optional of a time in nanoseconds; 0 if it is empty."""
    value, given = struct.unpack_from("<qB", raw, at)
    if given > 1:
        raise NotReadable(UNKNOWN_RING, "optional")
    if given and not _MIN_TIME_NS < value < _MAX_TIME_NS:
        raise NotReadable(UNKNOWN_RING, "time")
    return int(value) if given else 0

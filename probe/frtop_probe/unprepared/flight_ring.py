"""The Flight Recorder's ring, read from outside.

Its instance is a static inside a function, so its symbol is local: `static_symbols`. The layout of
an entry differs between releases: the size of an entry is the one at which all ids follow each
other, and its fields are accepted only if every string, and every SmallVector that points into
itself, is where it should be. Source: torch/csrc/distributed/c10d/FlightRecorder.hpp.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from frtop_probe.proc.memory import NotReadable, ProcessMemory, to_words
from frtop_probe.unprepared import cxx
from frtop_probe.unprepared.elf import Image
from frtop_probe.unprepared.flight_settings import OFF
from frtop_probe.unprepared.model import FlightRing, RingEntry
from frtop_probe.unprepared.recorded_lines import RecordedLines
from frtop_probe.unprepared.ring_entry import (
    LAYOUTS,
    MAX_ID,
    UNKNOWN_RING,
    EntryLayout,
    EntryReader,
)
from frtop_probe.unprepared.static_symbols import StaticSymbols
from frtop_probe.unprepared.torch_layout import NO_TORCH, TorchLayout

NO_RING: Final = "no Flight Recorder in this process yet"
MOVED: Final = "ring not readable: it moved while it was read"

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
_MAX_WORDS: Final = _MAX_ENTRIES * max(_STRIDES) // 8
_TRIES: Final = 3
_FROM_THE_FIRST: Final[Mapping[str, int]] = {}


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
        self,
        memory: ProcessMemory,
        layout: TorchLayout,
        symbols: StaticSymbols,
        proc: Path,
        sites: RecordedLines | None = None,
    ) -> None:
        """Without `sites`, entries have no lines."""
        self._memory = memory
        self._libraries = layout.libraries
        self._mutex = layout.mutex
        self._symbols = symbols
        self._proc = proc
        self._entries = EntryReader(memory, sites)
        self._statics: dict[str, int] = {}
        self._layouts: dict[str, tuple[int, EntryLayout]] = {}

    def read(
        self,
        limit: int | None = None,
        kinds: Collection[str] = (),
        since: Mapping[str, int] = _FROM_THE_FIRST,
    ) -> tuple[FlightRing, ...]:
        """Reads the newest entries of each ring; a ring that is not readable says why.

        Args:
            limit: Entries per ring at most; None for all.
            kinds: Kinds of ring to read; empty for all that there are libraries for.
            since: By kind, the id of the first entry that is wanted.

        Raises:
            NotReadable: there is no library of torch that may have a ring.
        """
        found = [kind for kind, library in _LIBRARY.items() if library in self._libraries]
        if not found:
            raise NotReadable(NO_TORCH)
        self._entries.start_look()
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
        stride, layout = self._layouts[kind]
        if (header.end - header.begin) % stride:
            raise NotReadable(UNKNOWN_RING, "size")
        if 0 < since <= header.id:  # a reset starts ids anew
            fresh = header.id - since
            limit = fresh if limit is None else min(limit, fresh)
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
        if header.capacity > _MAX_ENTRIES or header.next > header.capacity or header.id > MAX_ID:
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
            for layout in LAYOUTS:
                if layout.end <= stride and self._fits(raw, address, layout):
                    return stride, layout
        raise NotReadable(UNKNOWN_RING, f"{total} bytes")

    def _ids_follow(self, begin: int, stride: int, count: int) -> bool:
        """Tells whether neighbours have neighbouring ids, at a few places of the ring."""
        for place in {0, count // 3, 2 * count // 3, max(count - 2, 0)}:
            here = self._memory.word(begin + place * stride)
            if here > MAX_ID:
                return False
            if place + 1 < count:
                there = self._memory.word(begin + (place + 1) * stride)
                # The oldest follows the newest, and a reset starts from 0.
                if there not in (here + 1, 0) and not abs(there - here) >= count - 2:
                    return False
        return True

    def _fits(self, raw: bytes, address: int, layout: EntryLayout) -> bool:
        try:
            entry = self._entries.read(raw, address, layout)
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
                    read[slot] = self._entries.read(raw, first.begin + slot * stride, layout)
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

"""What torch's allocators did while a profile ran, from the `[memory]` events of its trace.

torch writes one for each block that is allocated or freed, thread by thread and so not in the
order of time. A device's event has its allocator's totals. The CPU's total becomes wrong as
soon as a block is freed without a profiler, and mapped files have their own total: there, changes
are added up.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final

import msgspec

from frtop_tui.features.profile.model import CPU, RankAllocations

OUT_OF_MEMORY: Final = b'"[OutOfMemory]"'
ALLOCATIONS: Final = frozenset((b'"[memory]"', OUT_OF_MEMORY))
"""Names of the events that `Allocations` takes."""
MOST_DEVICES: Final = 64
"""The most devices per rank: torch numbers no more."""
_CPU: Final = 0
_KINDS: Final = {1: "cuda", 12: "xpu", 19: "mtia"}
"""Names, by `c10::DeviceType` number."""
_MOST: Final = 1 << 50
_Total = Annotated[int, msgspec.Meta(ge=0, le=_MOST)]


class _Device(msgspec.Struct, frozen=True):
    kind: Annotated[int, msgspec.Meta(ge=0, le=127)] = msgspec.field(name="Device Type")
    index: Annotated[int, msgspec.Meta(ge=-1, le=127)] = msgspec.field(name="Device Id")

    def __str__(self) -> str:
        if self.kind == _CPU:
            return CPU
        return f"{_KINDS.get(self.kind, f'device type {self.kind}')}:{max(0, self.index)}"


class _Block(msgspec.Struct):
    allocated: _Total = msgspec.field(name="Total Allocated")
    reserved: _Total = msgspec.field(name="Total Reserved")
    change: Annotated[int, msgspec.Meta(ge=-_MOST, le=_MOST)] = msgspec.field(name="Bytes")


_devices: Final = msgspec.json.Decoder(_Device)
_blocks: Final = msgspec.json.Decoder(_Block)


class Allocations:
    """The allocations of one rank. Events that torch would not write like this are left out."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._places: dict[_Device, int] = {}
        self._failures = Counter[int]()
        self._process: msgspec.Raw | None = None
        # Columns: a profile may have a million of them.
        self._times, self._devices = array("d"), array("B")
        self._changes, self._allocated, self._reserved = array("q"), array("q"), array("q")

    def add(self, name: bytes, event: Mapping[str, msgspec.Raw]) -> None:
        """Takes an event with one of `NAMES`; its time is in µs."""
        try:
            device = _devices.decode(event["args"])
            if device not in self._places and len(self._places) == MOST_DEVICES:
                return
            if name == OUT_OF_MEMORY:
                self._failures[self._place(device)] += 1
                return
            block, at_us = _blocks.decode(event["args"]), float(msgspec.json.decode(event["ts"]))
            self._process = event["pid"]
        except (KeyError, TypeError, ValueError):
            return
        self._times.append(at_us)
        self._devices.append(self._place(device))
        self._changes.append(block.change)
        self._allocated.append(block.allocated)
        self._reserved.append(block.reserved)

    def _place(self, device: _Device) -> int:
        return self._places.setdefault(device, len(self._places))

    def counters(self) -> Iterator[dict[str, Any]]:
        """Events of the Trace Event Format: a lane per device, in the rank's own process."""
        names = [f"{device} memory" for device in self._places]
        for place, at_us, _, allocated, reserved in self._totals():
            values = {"allocated": allocated}
            if reserved is not None:
                values["reserved"] = reserved
            yield {"ph": "C", "name": names[place], "pid": self._process, "tid": 0,
                   "ts": round(at_us, 3), "args": values}  # fmt: skip

    def figures(self) -> list[RankAllocations]:
        """The figures of each device."""
        starts: dict[int, int] = {}
        ends: dict[int, int] = {}
        peaks: dict[int, int] = {}
        most: dict[int, int] = {}
        for place, _, before, allocated, reserved in self._totals():
            start = starts.setdefault(place, max(0, before))
            ends[place] = allocated
            peaks[place] = max(allocated, peaks.get(place, start))
            most[place] = max(reserved or 0, most.get(place, 0))
        return [
            RankAllocations(self._rank, str(device), starts.get(place, 0), ends.get(place, 0),
                            peaks.get(place, 0), most.get(place, 0), self._failures[place])
            for device, place in sorted(self._places.items(), key=lambda one: str(one[0]))
        ]  # fmt: skip

    def _totals(self) -> Iterator[tuple[int, float, int, int, int | None]]:
        """In order of time: place of the device, µs, bytes allocated before and after, reserved."""
        sums = {place: 0 for device, place in self._places.items() if device.kind == _CPU}
        for index in sorted(range(len(self._times)), key=self._times.__getitem__):
            place, at_us, change = self._devices[index], self._times[index], self._changes[index]
            if place in sums:
                sums[place] += change
                yield place, at_us, sums[place] - change, sums[place], None
            else:
                allocated = self._allocated[index]
                yield place, at_us, allocated - change, allocated, self._reserved[index]

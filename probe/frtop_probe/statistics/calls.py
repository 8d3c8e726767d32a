"""Counts a rank's ops by line, group, kind and size."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import log2
from typing import Final, NamedTuple

from frtop_probe import wire
from frtop_probe.statistics.call_columns import CallFields, pack_calls
from frtop_probe.wire.statistics import OCTAVE

MAX_CALLS: Final = 512
"""Most rows of one rank. A line whose sizes vary has one row per octave."""
MAX_MODULES: Final = 4096
"""Most rows of one rank by issuer and kind."""
MOST: Final = 2**62
"""Longer durations are garbage from a broken ring."""


class CallKey(NamedTuple):
    """What the ops of a row have in common; `site` is an index into a `SiteTable`."""

    kind: str
    group: int
    site: int
    size_class: int
    p2p: bool
    on_device: bool


OTHERS: Final = CallKey("", 0, 0, 0, False, False)
"""The row of all ops for which there is no room in another row."""


@dataclass(frozen=True, slots=True, eq=False)
class OpClass:
    """What many ops share. Compares by identity, because ops are sorted by it.

    Attributes:
        call: row in a `RankCalls`.
        size: bytes of an op.
        exact, late: how well its end is known.
        sync: the call returns only after the op is over.
        message: it sends or receives, and a wait for it on a host would be seen.
        module: issuer, by a `SiteTable`, and kind.
    """

    call: int
    group: int
    collective: bool
    size: int = 0
    exact: bool = True
    late: bool = False
    sync: bool = False
    module: tuple[int, str] | None = None
    message: bool = False


class OpFields(NamedTuple):
    """Ops of one rank in order of issue, field by field.

    `took` is how long an op took in ns: 0 while it is pending, negative if it failed. `waited` is
    how many ns the issuing thread waited for it before its end, 0 if no wait was seen.
    """

    classes: Sequence[OpClass]
    number: Sequence[int]
    issued: Sequence[int]
    took: Sequence[int]
    thread: Sequence[int]
    waited: Sequence[int]


class SiteTable:
    """Lines and issuers of a response: each is sent once. Indices begin at 1."""

    def __init__(self) -> None:
        self.places: dict[wire.Site, int] = {}
        self.issuers: dict[wire.Issuer, int] = {}

    def place(self, site: wire.Site | None) -> int:
        return 0 if site is None else self.places.setdefault(site, len(self.places) + 1)

    def module(self, issuer: wire.Issuer | None, kind: str) -> tuple[int, str] | None:
        """Returns an op's row among those by module; None if modules are not recorded."""
        if issuer is None:
            return None
        return self.issuers.setdefault(issuer, len(self.issuers) + 1), kind


class RankCalls:
    """The rows of one rank."""

    def __init__(self) -> None:
        self.places: dict[CallKey, int] = {}
        self._sums: dict[int, _Sums] = {}
        self._modules: dict[tuple[int, str], list[int]] = {}
        self.modules_left_out = 0
        """Number of ops whose modules have no row."""

    def place(self, key: CallKey) -> int:
        """Returns the row of a key, from 1 on."""
        if key not in self.places and len(self.places) >= MAX_CALLS:
            key = OTHERS
        return self.places.setdefault(key, len(self.places) + 1)

    def count(self, ops: OpFields) -> None:
        """Adds ops to their rows."""
        by_class: defaultdict[OpClass, list[int]] = defaultdict(list)
        for place, one in enumerate(ops.classes):
            by_class[one].append(place)
        for one, places in by_class.items():
            sums = self._sums.get(one.call)
            if sums is None:
                sums = self._sums[one.call] = _Sums()
            took, waited = ops.took, ops.waited
            sums.add(one, [took[place] for place in places], [waited[place] for place in places])
            if one.module is not None:
                self._count_module(one.module, len(places), one.size)

    def _count_module(self, key: tuple[int, str], count: int, size: int) -> None:
        found = self._modules.get(key)
        if found is None:
            if len(self._modules) >= MAX_MODULES:
                self.modules_left_out += count
                return
            found = self._modules[key] = [0, 0]
        found[0] += count
        found[1] += count * size

    def modules(self) -> tuple[wire.ModuleStatistics, ...]:
        """The rows by issuer and kind."""
        return tuple(
            wire.ModuleStatistics(issuer, kind, count, min(size, MOST))
            for (issuer, kind), (count, size) in self._modules.items()
        )

    def rows(self, wanted: Sequence[int] = ()) -> tuple[wire.CallColumns | None, list[int]]:
        """Returns the rows that have ops or are wanted.

        Returns:
            The rows, and for each former place its new place, from 1 on; 0 for none.
        """
        used = self._sums.keys() | set(wanted)
        rows, places = [], [0] * (len(self.places) + 1)
        for key, place in self.places.items():
            if place in used:
                rows.append(self._sums.get(place, _NONE).row(key))
                places[place] = len(rows)
        return pack_calls(rows), places

    @property
    def is_full(self) -> bool:
        return OTHERS in self.places


@dataclass(slots=True)
class _Sums:
    count: int = 0
    bytes: int = 0
    timed: int = 0
    timed_ns: int = 0
    max_ns: int = 0
    late: int = 0
    pending: int = 0
    waited_ns: int = 0
    durations: Counter[int] = field(default_factory=Counter)

    def add(self, one: OpClass, took: list[int], waited: list[int]) -> None:
        count = len(took)
        self.count += count
        self.bytes += count * one.size
        ended = took if min(took) > 0 else [ns for ns in took if ns > 0]
        if len(ended) < count:
            self.pending += took.count(0) if one.exact or one.late else 0
        if one.late:
            self.late += len(ended)
        if not one.exact or not ended:
            return
        total = sum(ended)
        self.timed += len(ended)
        self.timed_ns += total
        self.max_ns = max(self.max_ns, *ended)
        self.durations.update(buckets(ended))
        self.waited_ns += total if one.sync else sum(waited)

    def row(self, key: CallKey) -> CallFields:
        return (
            *key,
            self.count,
            min(self.bytes, MOST),
            self.timed,
            min(self.timed_ns, MOST),
            min(self.max_ns, MOST),
            self.late,
            self.pending,
            min(self.waited_ns, MOST),
            self.durations,
        )


_NONE: Final = _Sums()


def buckets(durations: Iterable[int]) -> list[int]:
    """The bucket of each duration in ns, from 1 on."""
    return [int(log2(one) * OCTAVE) for one in durations]


def quantile(counts: Mapping[int, int], share: float, most_ns: int) -> int | None:
    """Returns the quantile in ns for a share from 0 to 1, by counts of buckets; None without any.

    `most_ns` is the exact longest duration.
    """
    total = sum(counts.values())
    if not total:
        return None
    rank = share * total
    for bucket, count in sorted(counts.items()):
        rank -= count
        if rank <= 0:
            return min(round(2 ** ((bucket + 0.5) / OCTAVE)), most_ns)
    return most_ns

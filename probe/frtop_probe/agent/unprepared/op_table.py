"""Past ops of one rank in columns: some 60 bytes each, where an object takes ten times as much.

Equal signatures and lines are kept once.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from typing import Final, Generic, TypeVar

from frtop_probe import wire
from frtop_probe.ring.layout import Flag

Value = TypeVar("Value")
_P2P: Final = int(Flag.P2P)
_UNTRACKED: Final = int(Flag.UNTRACKED)
_DROPPED: Final = 1024
"""Signatures or lines that no op has any more, beyond which the tables are made anew."""


class OpTable:
    """Ops of Flight Recorder rings, ordered by sequence."""

    def __init__(self, most: int) -> None:
        """Is empty, and keeps the newest `most` ops."""
        self._most = most
        self._signatures: _Values[wire.Signature] = _Values()
        self._sites: _Values[wire.Site] = _Values()
        self._sequence, self._number, self._issued, self._done, self._timeout, self._thread = (
            array("q") for _ in range(6)
        )
        self._group, self._signature, self._site = (array("i") for _ in range(3))
        self._flags = array("H")

    def __len__(self) -> int:
        return len(self._sequence)

    def merge(self, ops: Iterable[wire.Op]) -> None:
        """Adds what was read now; of ops in both it is the newer knowledge."""
        fresh = {op.sequence: op for op in ops}
        if not fresh:
            return
        if self._sequence and max(fresh) < self._sequence[-1]:  # the ring was reset
            self._cut(0)
        begin = bisect_left(self._sequence, min(fresh))
        known = {op.sequence: op for op in self.ops(begin)}
        self._cut(begin)
        for _, op in sorted((known | fresh).items()):
            self._append(op)
        for column in self._columns:
            del column[: -self._most]
        if max(len(self._signatures), len(self._sites)) > self._most + _DROPPED:
            self._make_anew()

    def ops(self, begin: int = 0, end: int | None = None) -> tuple[wire.Op, ...]:
        """The ops from place `begin` to `end`; negative ones count from the newest."""
        return tuple(map(self._op, range(len(self))[begin:end]))

    def newest_first(self) -> Iterator[wire.Op]:
        return map(self._op, reversed(range(len(self))))

    def numbers(self) -> Iterator[tuple[int, int, wire.Signature | None]]:
        """Group, number and signature of the collectives, oldest first."""
        at = self._signatures.at
        for group, number, place, flags in zip(
            self._group, self._number, self._signature, self._flags, strict=True
        ):
            if not flags & _P2P:
                yield group, number, at(place)

    def history(
        self,
        lost: int,
        note: str,
        *,
        limit: int = 0,
        only: Callable[[int, int], bool] | None = None,
    ) -> wire.History:
        """The newest `limit` ops (0: all), or the collectives for which `only` is true.

        Args:
            lost: ops in between that could not be read.
            note: where the ops come from.
            limit: number of ops.
            only: takes group and number.
        """
        places: Iterable[int] = range(len(self))[-limit:]
        if only is not None:
            places = [
                place for place in places
                if not self._flags[place] & _P2P and only(self._group[place], self._number[place])
            ]  # fmt: skip
        signatures: _Values[wire.Signature] = _Values()
        sites: _Values[wire.Site] = _Values()
        rows = tuple(
            wire.HistoryRow(
                self._sequence[place],
                self._group[place],
                self._number[place],
                signatures.place_of(self._signatures.at(self._signature[place])),
                sites.place_of(self._sites.at(self._site[place])),
                self._issued[place],
                _took_ns(self._issued[place], self._done[place]),
                0,
                self._flags[place],
                timeout_ms=self._timeout[place],
            )
            for place in places
        )
        return wire.History(tuple(signatures), tuple(sites), rows, lost, note)

    @property
    def _columns(self) -> tuple[array[int], ...]:
        return (self._sequence, self._number, self._issued, self._done, self._timeout,
                self._thread, self._group, self._signature, self._site, self._flags)  # fmt: skip

    def _append(self, op: wire.Op) -> None:
        self._sequence.append(op.sequence)
        self._number.append(op.number)
        self._issued.append(op.issued_ns)
        self._done.append(op.done_ns)
        self._timeout.append(op.timeout_ms)
        self._thread.append(op.thread)
        self._group.append(op.group)
        self._signature.append(self._signatures.place_of(op.signature))
        self._site.append(self._sites.place_of(op.site))
        self._flags.append(
            (_P2P if op.p2p else 0)
            | (0 if op.tracked else _UNTRACKED)
            | (0 if op.timed else wire.UNTIMED)
        )

    def _op(self, place: int) -> wire.Op:
        flags = self._flags[place]
        return wire.Op(
            self._sequence[place],
            self._group[place],
            self._number[place],
            self._signatures.at(self._signature[place]),
            self._sites.at(self._site[place]),
            self._issued[place],
            self._done[place],
            self._thread[place],
            p2p=bool(flags & _P2P),
            tracked=not flags & _UNTRACKED,
            timeout_ms=self._timeout[place],
            timed=not flags & wire.UNTIMED,
        )

    def _cut(self, begin: int) -> None:
        for column in self._columns:
            del column[begin:]

    def _make_anew(self) -> None:
        """Drops the signatures and lines that no op has any more."""
        ops = self.ops()
        self._cut(0)
        self._signatures, self._sites = _Values(), _Values()
        for op in ops:
            self._append(op)


class _Values(Generic[Value]):
    """Values by their places, from 1; 0 is none."""

    def __init__(self) -> None:
        self._places: dict[Value, int] = {}
        self._values: list[Value | None] = [None]

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[Value]:
        return iter(self._places)

    def place_of(self, value: Value | None) -> int:
        """The place of a value, which is added if need be."""
        if value is None:
            return 0
        place = self._places.setdefault(value, len(self._values))
        if place == len(self._values):
            self._values.append(value)
        return place

    def at(self, place: int) -> Value | None:
        return self._values[place]


def _took_ns(issued_ns: int, done_ns: int) -> int:
    return max(1, done_ns - issued_ns) if done_ns else 0

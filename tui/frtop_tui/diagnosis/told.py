"""All ops that ranks tell of, by place: where two of them cannot both be right."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

from frtop_probe import wire
from frtop_probe.agreement import SPLIT
from frtop_tui.diagnosis.signatures import Disagreement, Place, compare_alike
from frtop_tui.job.groups import Identifier, identifier
from frtop_tui.job.model import RankView

_NOTHING: Mapping[Place, wire.Op] = {}


class Told:
    """Kept up with what changes; compared is only where a place changed, and may disagree."""

    def __init__(self) -> None:
        self._ops: dict[Place, dict[int, wire.Op]] = {}
        self._alike: dict[Place, defaultdict[wire.Signature | None, set[int]]] = {}
        self._changed: set[Place] = set()
        self._found: dict[Place, Disagreement] = {}

    def put(self, rank: int, old: Mapping[Place, wire.Op], new: Mapping[Place, wire.Op]) -> None:
        """Takes what `rank` tells now in the place of what it told."""
        for place, op in old.items():
            if new.get(place) is not op:
                self._drop(place, rank, op)
        for place, op in new.items():
            if old.get(place) is not op:
                self._add(place, rank, op)

    def disagreements(self, ranks: Mapping[int, RankView]) -> list[Disagreement]:
        """All that the last known ops of each group tell, at most one per group."""
        for place in self._changed:
            self._found.pop(place, None)
            if self._may_disagree(place) and (one := self._compare(place, ranks)) is not None:
                self._found[place] = one
        self._changed.clear()
        # The lowest number is where the paths parted; what follows is shifted.
        first: dict[Identifier, Disagreement] = {}
        for place in sorted(self._found):
            first.setdefault(place[:3], self._found[place])
        dated = [_dated(one, self._ops[(*key, one.number)], ranks) for key, one in first.items()]
        return sorted(dated, key=lambda one: one.since_ns)

    def _may_disagree(self, place: Place) -> bool:
        alike = self._alike.get(place)
        if alike is None:
            return False
        return len(alike) > 1 or any(one is not None and one.kind in SPLIT for one in alike)

    def _compare(self, place: Place, ranks: Mapping[int, RankView]) -> Disagreement | None:
        ops = self._ops[place]
        first = ranks[min(ops)].groups.values()
        group = next(group for group in first if identifier(group) == place[:3])
        return compare_alike(group, place[3], ops, self._alike[place].values())

    def _add(self, place: Place, rank: int, op: wire.Op) -> None:
        self._ops.setdefault(place, {})[rank] = op
        self._alike.setdefault(place, defaultdict(set))[op.signature].add(rank)
        self._changed.add(place)

    def _drop(self, place: Place, rank: int, op: wire.Op) -> None:
        ops, alike = self._ops[place], self._alike[place]
        del ops[rank]
        alike[op.signature].discard(rank)
        if not alike[op.signature]:
            del alike[op.signature]
        if not ops:
            del self._ops[place], self._alike[place]
        self._changed.add(place)


def _dated(
    one: Disagreement, ops: Mapping[int, wire.Op], ranks: Mapping[int, RankView]
) -> Disagreement:
    """With the time when the first of them issued it, on the operator's clock."""
    since = min(op.issued_ns + ranks[rank].clock_ns for rank, op in ops.items())
    return replace(one, since_ns=since)

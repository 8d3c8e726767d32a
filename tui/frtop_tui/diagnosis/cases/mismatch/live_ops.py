"""The last known ops of all ranks, by place: where two of them differ."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from frtop_probe import wire
from frtop_probe.consistency.signatures import SPLIT
from frtop_tui.diagnosis.cases.mismatch.compare import (
    Mismatch,
    OpPlace,
    compare_alike,
    first_issued_ns,
    ops_known,
)
from frtop_tui.job.groups import Identifier, identifier
from frtop_tui.job.model import Rank

_Alike = dict[wire.Signature | None, dict[int, wire.Op]]
"""The ops of one place by rank, those with equal signatures together."""


class LiveOps:
    """Follows the ranks; compares a place only when its ops have changed."""

    def __init__(self) -> None:
        self._places: dict[OpPlace, _Alike] = {}
        self._changed: set[OpPlace] = set()
        self._found: dict[OpPlace, Mismatch] = {}

    def update(self, replaced: Iterable[tuple[Rank | None, Rank | None]]) -> None:
        """Takes the ops of each rank's new object in place of those of its old one."""
        for old, new in replaced:
            before = ops_known(old) if old is not None else {}
            now = ops_known(new) if new is not None else {}
            view = new or old
            if view is None:
                continue
            for place, op in before.items():
                if now.get(place) is not op:
                    self._drop(place, view.rank, op)
            for place, op in now.items():
                if before.get(place) is not op:
                    alike = self._places.setdefault(place, {})
                    alike.setdefault(op.signature, {})[view.rank] = op
                    self._changed.add(place)

    def mismatches(self, ranks: Mapping[int, Rank]) -> list[Mismatch]:
        """Mismatches among the last known ops, at most one for each group."""
        for place in self._changed:
            self._found.pop(place, None)
            one = self._compare(place, ranks)
            if one is not None:
                self._found[place] = one
        self._changed.clear()
        # The lowest number is where ops began to differ; what follows is shifted.
        first: dict[Identifier, Mismatch] = {}
        for place in sorted(self._found):
            since_ns = first_issued_ns(self._ops(place), ranks)
            first.setdefault(place[:3], replace(self._found[place], since_ns=since_ns))
        return sorted(first.values(), key=lambda one: one.since_ns)

    def _compare(self, place: OpPlace, ranks: Mapping[int, Rank]) -> Mismatch | None:
        alike = self._places.get(place, {})
        splits = any(signature is not None and signature.kind in SPLIT for signature in alike)
        if len(alike) < 2 and not splits:
            return None
        ops = self._ops(place)
        groups = ranks[min(ops)].groups.values()
        group = next(group for group in groups if identifier(group) == place[:3])
        return compare_alike(group, place[3], ops, alike.values())

    def _ops(self, place: OpPlace) -> dict[int, wire.Op]:
        return {rank: op for ops in self._places[place].values() for rank, op in ops.items()}

    def _drop(self, place: OpPlace, rank: int, op: wire.Op) -> None:
        alike = self._places[place]
        del alike[op.signature][rank]
        if not alike[op.signature]:
            del alike[op.signature]
        if not alike:
            del self._places[place]
        self._changed.add(place)

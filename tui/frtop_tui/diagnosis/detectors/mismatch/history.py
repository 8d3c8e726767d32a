"""Whole histories compared, in recorded frames, which hold them.

A mismatch that nothing hung on and nobody watched is found when the file is opened.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from frtop_probe import wire
from frtop_probe.consistency.checksums import MODULUS, UNKNOWN, signature_digest, splits_digest
from frtop_probe.consistency.signatures import SPLIT
from frtop_tui.diagnosis.blocked.group_frontier import local_group_id
from frtop_tui.diagnosis.detectors.mismatch.compare import Mismatch, compare
from frtop_tui.job.groups import Identifier, identifier, members_of
from frtop_tui.job.model import Rank

MOST_COMPARED: Final = 64
"""Ops of one group that are compared field by field: only the first difference counts."""


@dataclass(slots=True)
class _Group:
    """What the first known rank issued at each number, and where others issued something else."""

    group: wire.Group
    counts: dict[int, int] = field(default_factory=dict)
    odd: set[int] = field(default_factory=set)
    pairs: dict[int, list[int]] = field(default_factory=dict)


def mismatches(ranks: Mapping[int, Rank]) -> list[Mismatch]:
    """The first op of each group that differs between members."""
    groups: dict[Identifier, _Group] = {}
    for view in ranks.values():
        if view.snapshot is not None:
            _take(groups, view, view.snapshot.ops)
    found = []
    for known in groups.values():
        size = len(members_of(known.group.ranks))
        unpaired = (n for n, (count, total) in known.pairs.items() if count == size and total)
        for number in sorted({*known.odd, *unpaired})[:MOST_COMPARED]:
            one = _compared(ranks, known.group, number)
            if one is not None:
                found.append(one)
                break
    return found


def _take(groups: dict[Identifier, _Group], view: Rank, ops: tuple[wire.Op, ...]) -> None:
    """Takes the ops of one rank: tens of thousands, so that checksums are looked up."""
    mine: dict[int, tuple[_Group, int, int] | None] = {}
    counts: dict[tuple[int, int], tuple[int | None, int]] = {}
    for op in ops:
        signature = op.signature
        if signature is None or op.p2p or op.pseudo:
            continue
        if op.group not in mine:
            mine[op.group] = _mine(groups, view, op.group)
        place = mine[op.group]
        if place is None:
            continue
        known, at, members = place
        key = op.group, id(signature)
        count = counts.get(key)
        if count is None:
            count = counts[key] = (
                signature_digest(signature, known.group.backend),
                splits_digest(signature, at, members),
            )
        mark, pairs = count
        if mark is None:
            continue
        if known.counts.setdefault(op.number, mark) != mark:
            known.odd.add(op.number)
        if pairs != 0 or signature.kind in SPLIT:
            total = known.pairs.setdefault(op.number, [0, 0])
            total[0] += 1 if pairs != UNKNOWN else members + 1
            total[1] = (total[1] + pairs) % MODULUS


def _mine(
    groups: dict[Identifier, _Group], view: Rank, number: int
) -> tuple[_Group, int, int] | None:
    """A rank's group, its place there, and how many members it has; None if not comparable."""
    group = view.groups.get(number)
    if group is None or not group.exact:
        return None
    members = members_of(group.ranks)
    at = members.index(view.rank) if view.rank in members else -1
    return groups.setdefault(identifier(group), _Group(group)), at, len(members)


def _compared(ranks: Mapping[int, Rank], group: wire.Group, number: int) -> Mismatch | None:
    ops: dict[int, wire.Op] = {}
    for rank, view in ranks.items():
        mine = local_group_id(view, group)
        for op in view.snapshot.ops if mine is not None and view.snapshot is not None else ():
            if op.number == number and op.group == mine and not (op.p2p or op.pseudo):
                ops[rank] = op
    one = compare(group, number, ops)
    if one is None:
        return None
    since = min(op.issued_ns + ranks[rank].clock_ns for rank, op in ops.items())
    return replace(one, since_ns=since)

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
from frtop_probe.consistency.signatures import RULE, RULE_OF_SIZES, SPLIT
from frtop_tui.diagnosis.blocked.group_frontier import local_group_id
from frtop_tui.diagnosis.cases.mismatch.compare import Mismatch, compare, first_issued_ns
from frtop_tui.job.groups import Identifier, identifier, members_of
from frtop_tui.job.model import Rank

MOST_COMPARED: Final = 64
"""Ops of one group that are compared field by field: only the first difference counts."""


@dataclass(slots=True)
class _Group:
    """What the first known rank issued at each number, and where others issued something else.

    `pairs` has how many ranks told their splits at a number, and the sum of what they told.
    """

    group: wire.Group
    members: tuple[int, ...]
    rule: int
    digests: dict[int, int] = field(default_factory=dict)
    odd: set[int] = field(default_factory=set)
    pairs: dict[int, list[int]] = field(default_factory=dict)


def mismatches(ranks: Mapping[int, Rank]) -> list[Mismatch]:
    """The first op of each group that differs between members."""
    groups: dict[tuple[Identifier, int], _Group] = {}
    for view in ranks.values():
        _take(groups, view)
    found = []
    for known in groups.values():
        size = len(known.members)
        unpaired = (n for n, (count, total) in known.pairs.items() if count == size and total)
        for number in sorted({*known.odd, *unpaired})[:MOST_COMPARED]:
            ops = _ops_at(ranks, known, number)
            one = compare(known.group, number, ops)
            if one is not None:
                found.append(replace(one, since_ns=first_issued_ns(ops, ranks)))
                break
    return found


def _take(groups: dict[tuple[Identifier, int], _Group], view: Rank) -> None:
    """Takes the ops of one rank: tens of thousands, so that checksums are looked up."""
    rule = _rule_of(view)
    mine: dict[int, _Group | None] = {}
    digests: dict[tuple[int, int], tuple[int | None, int]] = {}
    for op in view.snapshot.ops if view.snapshot is not None else ():
        signature = op.signature
        if signature is None or op.p2p or op.pseudo:
            continue
        if op.group not in mine:
            group = view.groups.get(op.group)
            mine[op.group] = (
                groups.setdefault(
                    (identifier(group), rule), _Group(group, members_of(group.ranks), rule)
                )
                if group is not None and group.exact
                else None
            )
        known = mine[op.group]
        if known is None:
            continue
        key = op.group, id(signature)
        if key not in digests:
            members = known.members
            at = members.index(view.rank) if view.rank in members else -1
            digests[key] = (
                signature_digest(signature, known.group.backend, rule),
                splits_digest(signature, at, len(members)),
            )
        digest, splits = digests[key]
        if digest is None:
            continue
        if known.digests.setdefault(op.number, digest) != digest:
            known.odd.add(op.number)
        if splits != 0 or signature.kind in SPLIT:
            total = known.pairs.setdefault(op.number, [0, 0])
            total[0] += 1 if splits != UNKNOWN else len(known.members) + 1
            total[1] = (total[1] + splits) % MODULUS


def _rule_of(view: Rank) -> int:
    """By which rule its past ops are compared, and so with which other ranks'."""
    return RULE if view.evidence.has_one_naming else RULE_OF_SIZES


def _ops_at(ranks: Mapping[int, Rank], known: _Group, number: int) -> dict[int, wire.Op]:
    ops: dict[int, wire.Op] = {}
    for rank, view in ranks.items():
        mine = local_group_id(view, known.group) if _rule_of(view) == known.rule else None
        for op in view.snapshot.ops if mine is not None and view.snapshot is not None else ():
            if op.number == number and op.group == mine and not (op.p2p or op.pseudo):
                ops[rank] = op
    return ops

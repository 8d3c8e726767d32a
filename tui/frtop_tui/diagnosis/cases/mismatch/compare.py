"""Whether ranks issued the same op at the same place: what differs, and what may.

`frtop_probe.consistency.signatures` has the fields that must agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from frtop_probe import wire
from frtop_probe.consistency.checksums import MODULUS, UNKNOWN, signature_digest, splits_digest
from frtop_probe.consistency.signatures import RULE, RULE_OF_SIZES, SPLIT, difference
from frtop_tui.diagnosis.blocked.group_frontier import local_group_id
from frtop_tui.diagnosis.blocked.ops_by_stack import may_be_same
from frtop_tui.job.groups import Identifier, identifier, members_of
from frtop_tui.job.model import Rank

NEAR = 2
"""A wait up to this many ops after a mismatch follows from it."""
MOST_PAIRED = 256
"""Members of a group whose splits are compared, each with each."""
MOST_UNPAIRED = 64
"""Pairs that a mismatch lists."""


class Party(Struct, frozen=True):
    """Ranks that issued equal ops at one sequence number, and that op."""

    ranks: tuple[int, ...]
    op: wire.Op


class Unpaired(Struct, frozen=True):
    """In an all_to_all, `sender` sends `sent` rows to `receiver`, which expects `expected`."""

    sender: int
    receiver: int
    sent: int
    expected: int


class Mismatch(Struct, frozen=True):
    """Different ops at the same number of one group; the largest party first.

    Splits disagree only in pairs: `unpaired` are the first of these, and a party's op is then that
    of one rank only.
    """

    group: wire.Group
    number: int
    field: str
    parties: tuple[Party, ...]
    since_ns: int = 0  # operator's clock: when the first of them issued it
    unpaired: tuple[Unpaired, ...] = ()

    @property
    def culprits(self) -> tuple[int, ...]:
        """The minority, if one party alone is larger than all others together."""
        return self.rest if len(self.parties[0].ranks) > len(self.rest) else ()

    @property
    def rest(self) -> tuple[int, ...]:
        """All but the largest party."""
        return tuple(sorted(rank for party in self.parties[1:] for rank in party.ranks))

    @property
    def first_pair(self) -> tuple[int, ...]:
        """The ranks of the first pair whose splits disagree; empty if something else differs."""
        return tuple(rank for one in self.unpaired[:1] for rank in (one.sender, one.receiver))

    def explains(self, group: wire.Group | None, number: int | None) -> bool:
        """Whether a wait in that op is a wait in the op that differs, or follows from it."""
        if group is None or number is None or identifier(group) != identifier(self.group):
            return False
        return 0 <= number - self.number <= NEAR


OpPlace = tuple[str, str, int, int, bool]
"""Where an op belongs: its group, its number there, and whether it is a past op of a source that
names past and pending ops differently."""


def ops_known(view: Rank) -> dict[OpPlace, wire.Op]:
    """The last known ops of a rank, by place."""
    ops: dict[OpPlace, wire.Op] = {}
    known = set()
    for front in view.group_progress.values():
        if front.last is not None:
            known.add(front.last.sequence)
            _note(ops, view, front.last)
    for op in view.pending:
        if op.sequence not in known:
            _note(ops, view, op)
    if view.snapshot is not None:
        other_naming = not view.evidence.has_one_naming
        for op in view.snapshot.ops:
            _note(ops, view, op, other_naming=other_naming)
    return ops


def _same_ops(old: Rank, new: Rank) -> bool:
    """Whether `ops_known` of both is the same; may be False even then."""
    return (
        old.group_progress is new.group_progress
        and old.pending is new.pending
        and old.groups is new.groups
        and old.snapshot is new.snapshot
        and old.evidence is new.evidence
    )


def _note(
    ops: dict[OpPlace, wire.Op], view: Rank, op: wire.Op, *, other_naming: bool = False
) -> None:
    if op.p2p or op.pseudo or op.signature is None:
        return
    group = view.groups.get(op.group)
    if group is None or not group.exact:
        return
    place = (*identifier(group), op.number, other_naming)
    # A later copy of the same op knows more: its reduce op is decoded later.
    before = ops.get(place)
    if before is None or before.signature is None or before.signature.reduce is None:
        ops[place] = op


def first_issued_ns(ops: Mapping[int, wire.Op], views: Mapping[int, Rank]) -> int:
    """When the first rank issued its op, on the operator's clock."""
    return min(op.issued_ns + views[rank].clock_ns for rank, op in ops.items())


def compare(group: wire.Group, number: int, ops: Mapping[int, wire.Op]) -> Mismatch | None:
    """Sorts ranks into parties by their ops at one number; None if all agree, as far as known."""
    alike: dict[wire.Signature | None, list[int]] = {}
    for rank in sorted(ops):
        alike.setdefault(ops[rank].signature, []).append(rank)
    return compare_alike(group, number, ops, alike.values())


def compare_alike(
    group: wire.Group,
    number: int,
    ops: Mapping[int, wire.Op],
    alike: Iterable[Iterable[int]],
) -> Mismatch | None:
    """The same if ranks with equal signatures are known: one of each is compared."""
    parties: list[tuple[wire.Op, list[int]]] = []
    # By rank: which ops count as equal may depend on the order.
    for rank, ranks in sorted((min(ranks), ranks) for ranks in map(list, alike)):
        op = ops[rank]
        for sample, members in parties:
            if not _differ(sample, op, group):
                members.extend(ranks)
                break
        else:
            parties.append((op, ranks))
    if len(parties) < 2:
        return _split_disagreement(group, number, ops)
    parties.sort(key=lambda party: (-len(party[1]), min(party[1])))
    field = _differ(parties[0][0], parties[1][0], group) or "signature"
    sorted_parties = tuple(Party(tuple(sorted(members)), op) for op, members in parties)
    return Mismatch(group, number, field, sorted_parties)


def _differ(one: wire.Op, other: wire.Op, group: wire.Group) -> str | None:
    if one.signature is None or other.signature is None or may_be_same(one, other, group):
        return None
    return difference(one.signature, other.signature, group.backend)


def _split_disagreement(
    group: wire.Group, number: int, ops: Mapping[int, wire.Op]
) -> Mismatch | None:
    """For all_to_all: what a rank sends to another has to be what that one expects."""
    # By position in the group: members are in group order if that is ascending.
    members = members_of(group.ranks)
    known = [
        (place, rank, op.signature)
        for place, rank in enumerate(members)
        if (op := ops.get(rank)) is not None
        and op.signature is not None
        and op.signature.kind in SPLIT
    ]
    if not 2 <= len(known) <= MOST_PAIRED:
        return None
    apart: list[Unpaired] = []
    for i, sender, sent in known:
        sends = sent.in_splits or ()
        if len(sends) != len(members):
            continue
        for j, receiver, taken in known:
            takes = taken.out_splits or ()
            if len(takes) == len(members) and sends[j] != takes[i]:
                apart.append(Unpaired(sender, receiver, sends[j], takes[i]))
    if not apart:
        return None
    sender, receiver = apart[0].sender, apart[0].receiver
    odd = [
        rank
        for rank in {sender, receiver}
        if all(rank in (pair.sender, pair.receiver) for pair in apart)
    ]
    main: tuple[int, ...] = (sender,)
    other: tuple[int, ...] = (receiver,)
    if len(odd) == 1:
        # All but one agree with each other.
        main, other = tuple(rank for _, rank, _ in known if rank != odd[0]), (odd[0],)
    parties = (Party(main, ops[main[0]]), Party(other, ops[other[0]]))
    return Mismatch(group, number, "splits", parties, unpaired=tuple(apart[:MOST_UNPAIRED]))


_Alike = dict[wire.Signature | None, dict[int, wire.Op]]
"""The ops of one place by signature and rank."""


class LiveOps:
    """Follows the ranks; compares a place only when its ops have changed."""

    def __init__(self) -> None:
        self._places: dict[OpPlace, _Alike] = {}
        self._changed: set[OpPlace] = set()
        self._found: dict[OpPlace, Mismatch] = {}

    def update(self, replaced: Iterable[tuple[Rank | None, Rank | None]]) -> None:
        """Replaces the ops of each rank's old object by those of its new one."""
        for old, new in replaced:
            if old is not None and new is not None and _same_ops(old, new):
                continue
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
        # Ops began to differ at the lowest number; what follows is shifted.
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


MOST_COMPARED: Final = 64
"""Ops of one group that are compared field by field: only the first difference counts."""


@dataclass(slots=True)
class _Group:
    """What the first known rank issued at each number, and where others differ.

    `pairs` has, by number, how many ranks have known splits, and the sum of their digests.
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
    """Takes the ops of one rank: tens of thousands, so checksums are cached."""
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
    """The rule by which its past ops are compared with those of other ranks."""
    return RULE if view.evidence.has_one_naming else RULE_OF_SIZES


def _ops_at(ranks: Mapping[int, Rank], known: _Group, number: int) -> dict[int, wire.Op]:
    ops: dict[int, wire.Op] = {}
    for rank, view in ranks.items():
        mine = local_group_id(view, known.group) if _rule_of(view) == known.rule else None
        for op in view.snapshot.ops if mine is not None and view.snapshot is not None else ():
            if op.number == number and op.group == mine and not (op.p2p or op.pseudo):
                ops[rank] = op
    return ops


MOST_FOUND: Final = 8


class KnownMismatches:
    """Mismatches stay known: the data is wrong even if the job goes on."""

    def __init__(self) -> None:
        self._known: dict[Identifier, Mismatch] = {}

    def keep(self, fresh: Iterable[Mismatch]) -> list[Mismatch]:
        """All known mismatches, one per group: where its ops began to differ."""
        for one in fresh:
            key = identifier(one.group)
            known = self._known.get(key)
            better = known is not None and _order(one) <= _order(known)
            if better or (known is None and len(self._known) < MOST_FOUND):
                self._known[key] = one
        return list(self._known.values())


def _order(found: Mismatch) -> tuple[int, int]:
    """The lowest number first, then the one with the most ranks."""
    return found.number, -sum(len(party.ranks) for party in found.parties)

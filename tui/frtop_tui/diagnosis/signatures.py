"""Whether two ranks issued the same op at the same place: what differs, and what may.

Which fields have to agree is told by `frtop_probe.consistency.signatures`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from frtop_probe import wire
from frtop_probe.consistency.signatures import SIZELESS, SPLIT, difference
from frtop_tui.job.groups import identifier, members_of
from frtop_tui.job.model import Rank

NEAR = 2
"""A wait this few ops after a disagreement follows from it."""
MOST_PAIRED = 256
"""Members of a group whose splits are compared: each with each."""


class Party(Struct, frozen=True):
    """Ranks whose op at one number is alike, and that op."""

    ranks: tuple[int, ...]
    op: wire.Op


class Disagreement(Struct, frozen=True):
    """Different ops at the same number of one group; parties by size, the largest first."""

    group: wire.Group
    number: int
    field: str
    parties: tuple[Party, ...]
    since_ns: int = 0  # operator's clock: when the first of them issued it

    @property
    def culprits(self) -> tuple[int, ...]:
        """The minority, if one party alone is larger than all others together."""
        return self.rest if len(self.parties[0].ranks) > len(self.rest) else ()

    @property
    def rest(self) -> tuple[int, ...]:
        """All but the largest party."""
        return tuple(sorted(rank for party in self.parties[1:] for rank in party.ranks))

    def is_open(self, untold: int) -> bool:
        """Whether so many members more could make another party the largest."""
        return len(self.parties[0].ranks) <= len(self.rest) + untold

    def leads_to(self, group: wire.Group | None, number: int | None) -> bool:
        """Whether a wait for that op is one for the op in disagreement, or follows from it."""
        if group is None or number is None or identifier(group) != identifier(self.group):
            return False
        return 0 <= number - self.number <= NEAR


Place = tuple[str, str, int, int]
"""An op's: its group, and its number there."""


def ops_told(view: Rank) -> dict[Place, wire.Op]:
    """The last ops that a rank tells of, where others may have issued other ones."""
    told: dict[Place, wire.Op] = {}
    known = set()
    for front in view.group_progress.values():
        if front.last is not None:
            known.add(front.last.sequence)
            _note(told, view, front.last)
    for op in view.pending:
        if op.sequence not in known:
            _note(told, view, op)
    if view.snapshot is not None:
        for op in view.snapshot.ops:
            _note(told, view, op)
    return told


def _note(told: dict[Place, wire.Op], view: Rank, op: wire.Op) -> None:
    if op.p2p or op.pseudo or op.signature is None:
        return
    group = view.groups.get(op.group)
    if group is None or not group.exact:
        return
    place = (*identifier(group), op.number)
    # A later copy of the same op knows more: its reduce op is decoded after the fact.
    before = told.get(place)
    if before is None or before.signature is None or before.signature.reduce is None:
        told[place] = op


def compare(group: wire.Group, number: int, ops: Mapping[int, wire.Op]) -> Disagreement | None:
    """Sorts the ranks of one number into parties; None when all agree as far as known."""
    alike: dict[wire.Signature | None, list[int]] = {}
    for rank in sorted(ops):
        alike.setdefault(ops[rank].signature, []).append(rank)
    return compare_alike(group, number, ops, alike.values())


def compare_alike(
    group: wire.Group,
    number: int,
    ops: Mapping[int, wire.Op],
    alike: Iterable[Iterable[int]],
) -> Disagreement | None:
    """The same where it is known whose signatures are equal: only one of each is compared."""
    parties: list[tuple[wire.Op, list[int]]] = []
    # The first of them in order of ranks: who is alike to whom may depend on it.
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
    return Disagreement(group, number, field, sorted_parties)


def _differ(one: wire.Op, other: wire.Op, group: wire.Group) -> str | None:
    if one.signature is None or other.signature is None:
        return None
    return difference(one.signature, other.signature, group.backend)


def _split_disagreement(
    group: wire.Group, number: int, ops: Mapping[int, wire.Op]
) -> Disagreement | None:
    """all_to_all: what one sends to another is what that one expects from it."""
    # By position in the group; members are in group order when their order is ascending.
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
    apart: list[tuple[int, int]] = []
    for i, sender, sent in known:
        sends = sent.in_splits or ()
        if len(sends) != len(members):
            continue
        for j, receiver, taken in known:
            takes = taken.out_splits or ()
            if len(takes) == len(members) and sends[j] != takes[i]:
                apart.append((sender, receiver))
    if not apart:
        return None
    sender, receiver = apart[0]
    odd = [rank for rank in {sender, receiver} if all(rank in pair for pair in apart)]
    main: tuple[int, ...] = (sender,)
    other: tuple[int, ...] = (receiver,)
    if len(odd) == 1:
        # All but one agree in pairs among themselves.
        main, other = tuple(rank for _, rank, _ in known if rank != odd[0]), (odd[0],)
    parties = (Party(main, ops[main[0]]), Party(other, ops[other[0]]))
    return Disagreement(group, number, "splits", parties)


def wording(signature: wire.Signature | None) -> str:
    """`all_reduce sum float32[1024]`, as in an evidence line."""
    if signature is None:
        return "an op of unknown signature"
    parts = [signature.kind]
    if signature.reduce:
        parts.append(signature.reduce)
    if signature.root is not None:
        parts.append(f"root {signature.root}")
    specs = signature.inputs or signature.outputs or ()
    if specs and signature.kind not in SIZELESS:
        shown = [f"{s.dtype}[{','.join(map(str, s.shape))}]" for s in specs[:2]]
        parts.append(" ".join(shown) + (" …" if len(specs) > 2 else ""))
    if signature.in_splits or signature.out_splits:
        parts.append(f"splits {_short(signature.in_splits)} out {_short(signature.out_splits)}")
    return " ".join(parts)


def _short(splits: tuple[int, ...] | None) -> str:
    if splits is None:
        return "?"
    return ",".join(map(str, splits[:8])) + (",…" if len(splits) > 8 else "")

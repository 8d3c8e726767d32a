"""Which ranks get a lane, in which order."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import chain

from frtop_tui.diagnosis.model import Frame, Verdict
from frtop_tui.job.groups import Identifier, identifier, members_of


def ranks_in_lanes(
    frame: Frame, marked: Collection[int], group: Identifier | None = None
) -> tuple[list[int], str]:
    """The ranks in their order, and a description of them.

    Marked ranks, else those of the group, else all: culprits first, then ranks that share the
    group of their verdict with them, then the others that wait.
    """
    here = {rank for rank in marked if rank in frame.ranks}
    if here:
        return sorted(here), "marked ranks"
    first = blamed(frame)
    if group is not None:
        members = [rank for rank in members_of(group[1]) if rank in frame.ranks]
        named = [view for view in frame.groups if identifier(view.key) == group]
        label = (named[0].description or named[0].key.name) if named else group[0]
        return _ahead(first, members), f"ranks of {label}"
    rest = sorted(frame.ranks)
    words = "culprits first" if first else "all ranks"
    return _ahead((*first, *_concerned(frame.verdicts)), rest), words


def late_in(frame: Frame, rank: int) -> Identifier | None:
    """The group in which this rank is late, according to a verdict *slow*."""
    found = (one.group for one in frame.verdicts if one.slow is not None and rank in one.culprits)
    key = next(found, None)
    return identifier(key) if key is not None else None


def blamed(frame: Frame) -> tuple[int, ...]:
    """Culprits, and one rank of each party, in the order of the verdicts."""
    found = [
        rank
        for verdict in frame.verdicts
        for rank in (*verdict.culprits, *(party[0] for party in verdict.parties if party))
    ]
    return tuple(dict.fromkeys(rank for rank in found if rank in frame.ranks))


def to_compare(frame: Frame, marked: Collection[int], rank: int | None) -> list[int]:
    """The ranks whose queues stand side by side, the most informative ones first.

    Marked ranks; else `rank` (or a culprit), the other sides of its verdict, members of
    the verdict's group, and others that wait for it; then members of its groups.
    """
    here = sorted(one for one in marked if one in frame.ranks)
    if len(here) > 1:
        return here
    first = [one for one in (*here, rank) if one is not None and one in frame.ranks]
    first = first or list(blamed(frame)[:1]) or sorted(frame.ranks)[:1]
    about = [one for one in frame.verdicts if {*first} & {*one.culprits, *chain(*one.parties)}]
    sides = [party[0] for one in about for party in one.parties if party]
    beside = [
        one
        for view in first[:1]
        for group in frame.ranks[view].groups.values()
        for one in members_of(group.ranks)
    ]
    found = dict.fromkeys((*first, *sides, *_concerned(about), *beside))
    return [one for one in found if one in frame.ranks]


def _concerned(verdicts: Sequence[Verdict]) -> list[int]:
    """Members of the verdicts' groups, whose ops can be compared; then all others that wait."""
    near = [n for one in verdicts if one.group for n in members_of(identifier(one.group)[1])]
    return [*near, *sorted(set(chain.from_iterable(one.victims for one in verdicts)))]


def _ahead(first: Collection[int], ranks: Collection[int]) -> list[int]:
    """`ranks`, with those in `first` at the top."""
    here = set(ranks)
    ordered = dict.fromkeys(rank for rank in first if rank in here)
    return [*ordered, *(rank for rank in ranks if rank not in ordered)]

"""How far each member of one group is: what it issued and, if visible, completed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Generic, TypeVar

from msgspec import Struct

from frtop_probe import wire
from frtop_tui.job.groups import Identifier, identifier
from frtop_tui.job.model import GroupView, Rank

RankT = TypeVar("RankT", bound=Rank)


class Member(Struct, Generic[RankT], frozen=True):
    """One member.

    `rank` is None if it never reported, `group` if it does not know the group. `issued` is the
    number of the last collective that it issued: 0 before the first, None if unknown. `progress` is
    None before its first op in the group.
    """

    number: int
    rank: RankT | None = None
    group: wire.Group | None = None
    progress: wire.GroupProgress | None = None
    issued: int | None = None

    @property
    def completed(self) -> int | None:
        """The number of the last collective that is known to be over; None if unknown.

        An op that its rank waits in is not over; those before it are.
        """
        progress, rank = self.progress, self.rank
        if progress is None or rank is None or self.issued is None:
            return None
        if progress.watched:
            return progress.completed
        if rank.pending_more:
            return None
        if rank.pending:
            pending = [
                op.number
                for op in rank.pending
                if op.group == progress.group and not (op.p2p or op.pseudo)
            ]
            if pending:
                return min(pending) - 1
        last = progress.last
        return self.issued if last is not None and last.tracked and last.done_ns else None


def members(
    view: GroupView, ranks: Mapping[int, RankT], only: Iterable[int] | None = None
) -> Iterator[Member[RankT]]:
    """The members of a group in order, or `only` some of them. Each costs a microsecond."""
    key: Identifier = identifier(view.key)
    name, folded, epoch = key
    local = 0  # mostly the same for all: ranks make groups in one order
    for number in view.members if only is None else only:
        rank = ranks.get(number)
        if rank is None:
            yield Member(number)
            continue
        group = rank.groups.get(local)
        # Comparing identical strings is free; names and epochs repeat with other members.
        if group is None or group.ranks != folded or group.name != name or group.epoch != epoch:
            group = next((one for one in rank.groups.values() if identifier(one) == key), None)
        if group is None:
            yield Member(number, rank)
            continue
        local = group.id
        progress = rank.group_progress.get(local)
        issued = None
        if not group.gone and rank.evidence.has_numbers and rank.identity.c10d_readable:
            issued = progress.number if progress is not None else 0
        yield Member(number, rank, group, progress, issued)


def by_number(
    numbers: Iterable[tuple[int, int | None]],
) -> list[tuple[int | None, tuple[int, ...]]]:
    """Ranks by the number that each has reached, the furthest first, unknown ones last."""
    found: dict[int | None, list[int]] = defaultdict(list)
    for rank, number in numbers:
        found[number].append(rank)
    ordered = sorted(found, key=lambda number: -1 if number is None else number, reverse=True)
    return [(number, tuple(found[number])) for number in ordered]

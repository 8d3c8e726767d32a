"""How far each member of one group is: what it issued and, where that is seen, completed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from frtop_probe import wire
from frtop_tui.job.groups import Identifier, identifier
from frtop_tui.job.model import GroupView, Rank

RankT = TypeVar("RankT", bound=Rank)


@dataclass(frozen=True, slots=True)
class Member(Generic[RankT]):
    """One member. `rank` is None where it was never heard, `group` where it does not know it.

    `progress` is None before its first op there.
    """

    number: int
    rank: RankT | None
    group: wire.Group | None = None
    progress: wire.GroupProgress | None = None

    @property
    def issued(self) -> int | None:
        """The number of the last collective that it issued; None where nobody knows."""
        if self.group is None or self.group.gone or self.rank is None:
            return None
        if not self.rank.evidence.has_numbers or not self.rank.identity.books:
            return None
        return self.progress.number if self.progress is not None else 0

    @property
    def completed(self) -> int | None:
        """The number of the last one that is known to be over, here or on its device.

        An op that its rank waits in is not over, and those before it are.
        """
        if self.issued is None or self.progress is None or self.rank is None:
            return None
        if self.progress.watched:
            return self.progress.completed
        local = self.progress.group
        pending = [
            op.number for op in self.rank.pending if op.group == local and not (op.p2p or op.pseudo)
        ]
        if self.rank.pending_more:
            return None
        last = self.progress.last
        if pending:
            return min(pending) - 1
        if last is not None and not last.tracked:
            return None
        return self.issued if last is not None and last.done_ns else None


def members(
    view: GroupView, ranks: Mapping[int, RankT], only: Iterable[int] | None = None
) -> Iterator[Member[RankT]]:
    """The members of a group in order, or `only` some. Each costs a microsecond."""
    key: Identifier = identifier(view.key)
    local = 0  # mostly the same for all: ranks make groups in one order
    for number in view.members if only is None else only:
        rank = ranks.get(number)
        if rank is None:
            yield Member(number, None)
            continue
        group = rank.groups.get(local)
        if group is None or identifier(group) != key:
            group = next((one for one in rank.groups.values() if identifier(one) == key), None)
        if group is None:
            yield Member(number, rank)
            continue
        local = group.id
        yield Member(number, rank, group, rank.group_progress.get(local))


def by_number(numbers: Mapping[int, int | None]) -> list[tuple[int | None, tuple[int, ...]]]:
    """Ranks by the number that each has come to, the furthest first; unknown ones last."""
    found: dict[int | None, list[int]] = defaultdict(list)
    for rank, number in numbers.items():
        found[number].append(rank)
    ordered = sorted(found, key=lambda number: -1 if number is None else number, reverse=True)
    return [(number, tuple(found[number])) for number in ordered]

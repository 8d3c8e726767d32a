"""Which deaths came first with a cause of their own, and which only followed.

A launcher ends the others within half a second of the first failure, and gloo's peers raise when a
connection closes: neither is a cause.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from frtop_tui.diagnosis.blocked.rank_index import RankIndex
from frtop_tui.diagnosis.evidence.death import INTERRUPTED, Death
from frtop_tui.job.model import Rank

TOGETHER_NS: Final = 1_000_000_000
"""Deaths this close may be seen in either order: a peer notices a closed connection before the
agent notices the end of the process."""
FOLLOWS_NS: Final = 2_000_000_000
"""A further cause later than this counts as a consequence."""


@dataclass(frozen=True, slots=True)
class Deaths:
    """All deaths of a job: `roots` grouped by cause, by time, and those that followed."""

    roots: tuple[tuple[Death, ...], ...] = ()
    followers: tuple[Death, ...] = ()

    @property
    def some(self) -> bool:
        return bool(self.roots or self.followers)

    @property
    def first(self) -> list[Death]:
        """The deaths of all roots."""
        return [death for group in self.roots for death in group]

    @property
    def every(self) -> list[Death]:
        """Roots, then followers."""
        return [*self.first, *self.followers]


def sorted_deaths(every: Iterable[Death], ranks: Mapping[int, Rank]) -> Deaths:
    """Sorts the deaths of a job's `ranks` into causes and consequences."""
    found = sorted(every, key=lambda death: (death.at_ns, death.rank))
    if not found:
        return Deaths()
    # torchrun kills survivors of its SIGTERM half a minute later.
    late_kill = found[0].at_ns + 5 * TOGETHER_NS
    own = [d for d in found if d.nature == "own" and not (d.killed and d.at_ns > late_kill)]
    aborts, ended, unknown = (
        [death for death in found if death.nature == nature]
        for nature in ("abort", "ended", "unknown")
    )
    # A gloo abort counts as own only if nothing better happened at about the same time; an end by
    # SIGTERM or of unknown cause only if there is nothing else.
    candidates = (
        own
        or aborts
        or _out_before(ended, found, ranks)
        or _only_if_all(ended, found)
        or _only_if_all(unknown, found)
    )
    if aborts and own and own[0].at_ns > aborts[0].at_ns + TOGETHER_NS:
        candidates = aborts
    if not candidates:
        return Deaths((), tuple(found))
    first = candidates[0]
    near = [death for death in candidates if death.at_ns <= first.at_ns + FOLLOWS_NS]
    groups: dict[tuple[str, str], list[Death]] = {}
    for death in near:
        groups.setdefault(death.likeness, []).append(death)
    roots = tuple(tuple(group) for group in groups.values())
    named = {death.rank for death in near}
    return Deaths(roots, tuple(death for death in found if death.rank not in named))


def _out_before(ended: list[Death], found: list[Death], ranks: Mapping[int, Rank]) -> list[Death]:
    """Those whose processes were gone when the first of the others was ended.

    A launcher ends the others because of them; a rank hit by SIGTERM takes longer to raise and
    exit. A connection breaks by itself only if no other rank can have closed it.
    """
    if not ended or any(death.cause == INTERRUPTED for death in ended):
        return []
    alone = len(ranks) >= next(iter(ranks.values())).identity.job.world_size
    alone = alone and all(view.state != "done" for view in ranks.values())
    natures = ("network", "unknown") if alone else ("unknown",)
    return [d for d in found if d.nature in natures and 0 < d.out_ns < ended[0].at_ns]


def _only_if_all(some: list[Death], found: list[Death]) -> list[Death]:
    """The first of `some`, unless others broke first: then no cause of their own is known.

    Ctrl+c reaches some ranks sooner than others; a launcher's SIGTERM then follows from it.
    """
    if not some:
        return []
    some = [death for death in some if death.cause == INTERRUPTED] or some
    first = some[0].at_ns
    victims = [death for death in found if death.nature in ("network", "timeout")]
    if any(
        one.nature == "timeout" or one.at_ns < first - TOGETHER_NS or 0 < one.out_ns < first
        for one in victims
    ):
        return []
    if some[0].cause == INTERRUPTED:
        return some
    return [death for death in some if death.at_ns <= first + TOGETHER_NS // 10]


class DeathOrder:
    """The deaths of a job, sorted again only when the index says that they may have changed."""

    def __init__(self) -> None:
        self._version = 0
        self._deaths = Deaths()

    def of(self, index: RankIndex) -> Deaths:
        """The deaths at the last update of `index`."""
        if index.deaths_version != self._version:
            self._version = index.deaths_version
            self._deaths = sorted_deaths(index.dead.values(), index.ranks)
        return self._deaths

"""What several looks at late ranks, and at others, show: a line at which they wait outside ops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import sqrt
from operator import itemgetter
from typing import Final, NamedTuple, cast

from frtop_tui.diagnosis.causes import LOCATIONS, LocationKind, SlowWord
from frtop_tui.diagnosis.evidence.rank_activity import located
from frtop_tui.diagnosis.evidence.working_thread import working_thread
from frtop_tui.job.model import Rank

ENOUGH: Final = 24
"""Looks at a rank, a second apart: a wait that takes a tenth of its time is seen twice or more."""
FEWEST: Final = 4
"""Looks at one line. Fewer may be chance."""
WAITS: Final[frozenset[LocationKind]] = frozenset({
    "sleeping", "lock", "file_lock", "build_lock", "file_io", "socket", "child", "pipe",
})  # fmt: skip
"""Where a rank neither computes nor waits for other ranks; `LOCATIONS` has their causes."""
_COMPUTES: Final[frozenset[LocationKind]] = frozenset({"computing", "backward"})
_Place = tuple[LocationKind, str]


class WaitSeen(NamedTuple):
    """A line at which late ranks wait much more often than others."""

    kind: LocationKind
    line: str
    there: int  # of `looks` at them
    looks: int
    others_there: int  # of `others_looks` at ranks on time
    others_looks: int

    @property
    def cause(self) -> SlowWord:
        return cast("SlowWord", LOCATIONS[self.kind].cause)


@dataclass(slots=True)
class _OfRank:
    last_ns: int = 0
    looks: int = 0
    in_torch: int = 0
    places: Counter[_Place] = field(default_factory=Counter)


@dataclass(slots=True)
class Looks:
    """Counts where the working threads of some ranks were, look by look."""

    _known: dict[int, _OfRank] = field(default_factory=dict)

    def take(self, ranks: Mapping[int, Rank], who: Iterable[int]) -> None:
        """Counts looks at the ranks in `who` that are new, and forgets all other ranks."""
        self._known = {rank: self._known.get(rank) or _OfRank() for rank in who if rank in ranks}
        for rank, seen in self._known.items():
            view = ranks[rank]
            look = view.snapshot
            if look is None or look.at_ns <= seen.last_ns:
                continue
            working = working_thread(view)
            if working is None:
                continue
            at = located(view, working)
            seen.last_ns = look.at_ns
            seen.looks += 1
            seen.places[at.kind, at.line] += 1
            if at.kind in _COMPUTES and at.leaf is not None and "/torch/" in at.leaf.file:
                seen.in_torch += 1

    def wants(self, rank: int) -> bool:
        """Whether there have been few looks at a rank."""
        return rank not in self._known or self._known[rank].looks < ENOUGH

    def in_torch(self, rank: int) -> tuple[int, int]:
        """In how many looks a rank computed in torch's code, which starts kernels; all looks."""
        seen = self._known.get(rank) or _OfRank()
        return seen.in_torch, seen.looks

    def wait_of(self, late: Iterable[int], others: Iterable[int], share: float) -> WaitSeen | None:
        """The wait that takes at least this share of the late ranks' time, unlike the others'."""
        own, looks = self._sum(late)
        compared, others_looks = self._sum(others)
        if not looks or not others_looks:
            return None
        more_at = {
            place: own[place] / looks - compared[place] / others_looks
            for place in own
            if place[0] in WAITS and place[1] and own[place] >= FEWEST
        }
        if not more_at:
            return None
        place, more = max(more_at.items(), key=itemgetter(1))
        mean = (own[place] + compared[place]) / (looks + others_looks)
        by_chance = 2 * sqrt(mean * (1 - mean) * (1 / looks + 1 / others_looks))
        if more < max(share, by_chance):
            return None
        return WaitSeen(*place, own[place], looks, compared[place], others_looks)

    def _sum(self, who: Iterable[int]) -> tuple[Counter[_Place], int]:
        known = [self._known[rank] for rank in who if rank in self._known]
        places = sum((one.places for one in known), Counter[_Place]())
        return places, sum(one.looks for one in known)

"""Where an op that all have entered does not finish because packets do not arrive.

What one host sends and another never acknowledges is a dead link between the two. A host
that is one end of all of them is cut off itself; of a single link nobody can say which end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from frtop_probe import wire
from frtop_tui.diagnosis.absence import Absence
from frtop_tui.diagnosis.phrases import op_text
from frtop_tui.diagnosis.point import Point
from frtop_tui.job.model import RankView, Why
from frtop_tui.job.naming import folded, listed

_MOST_TOLD: Final = 4


@dataclass(frozen=True, slots=True)
class Severed:
    """What to say first, why, and the ranks of the host that is cut off, if it is one."""

    head: str
    absence: Absence
    ranks: tuple[int, ...] = ()


def severed(views: Mapping[int, RankView], point: Point) -> Severed | None:
    """The dead links between the members of `point`; None if none is seen."""
    if point.op.p2p or point.op.pseudo:
        return None  # whose links it needs is not known
    members = {rank: views[rank] for rank in point.members if rank in views}
    ends = _Ends(members, apart=len({view.host for view in views.values()}) > 1)
    found = {
        (view.rank, link): frozenset((ends.of(view), ends.beyond(link)))
        for view in members.values()
        for link in _dead(view)
    }
    links = {pair for pair in found.values() if len(pair) == 2}
    if not links:
        return None
    evidence = tuple(
        f"rank {rank}: {link.remote} has not acknowledged {link.queued} bytes,"
        f" sent {link.again + 1} times"
        for rank, link in [one for one in found if found[one] in links][:_MOST_TOLD]
    )
    common = frozenset[str].intersection(*links)
    if len(links) > 1 and len(common) == 1:
        (end,) = common
        others = sorted(frozenset[str].union(*links) - common)
        ranks = tuple(sorted(rank for rank, view in members.items() if ends.of(view) == end))
        return _cut_off(point, end, ranks, others, evidence)
    told = listed([" and ".join(sorted(pair)) for pair in sorted(links, key=sorted)])
    text = f"nothing gets through between {told}: what is sent is never acknowledged"
    step = "the cables and switches between them: `ip -br link`, `ip -s link`; ping one another"
    head = f"all have entered {op_text(point)}, and the network does not bring it about"
    return Severed(head, Absence(Why("unreachable", "network", text), step, evidence))


class _Ends:
    """What dead links are between: hosts, or ranks where all are on one host."""

    def __init__(self, members: Mapping[int, RankView], *, apart: bool) -> None:
        self._apart = apart
        self._owners = {
            (link.local, link.remote): view for view in members.values() for link in _dead(view)
        }
        self._homes = {
            address: view.host
            for view in members.values()
            if view.look is not None
            for address in view.look.addresses
        }

    def of(self, view: RankView) -> str:
        return view.host if self._apart else f"rank {view.rank}"

    def beyond(self, link: wire.Link) -> str:
        """The other end: whose it is if that one has the same dead link, else its host."""
        owner = self._owners.get((link.remote, link.local))
        if owner is not None:
            return self.of(owner)
        address = _address(link.remote)
        return self._homes.get(address, address) if self._apart else link.remote


def _cut_off(
    point: Point, end: str, ranks: tuple[int, ...], others: list[str], evidence: tuple[str, ...]
) -> Severed:
    """`ranks` are empty where nobody has seen the host from inside."""
    named = folded(ranks) if ranks else end
    name = named if end.startswith(named) else f"{named} on {end}"
    head = f"{name} cannot be reached by the others, in {op_text(point)} that all have entered"
    text = (
        f"nothing gets through between {end} and {listed(others)}:"
        " what is sent is never acknowledged"
    )
    step = (
        f"on the host of {name}: ip -br link; ip -s link; then its cable and switch, its firewall"
    )
    return Severed(head, Absence(Why("unreachable", "network", text), step, evidence), ranks)


def _dead(view: RankView) -> tuple[wire.Link, ...]:
    """As of the last look at a rank that lives."""
    return view.look.links if view.look is not None and view.ending is None else ()


def _address(end: str) -> str:
    """Without the port."""
    return end.rpartition(":")[0].strip("[]")

"""Where an op that all have entered does not finish because packets do not arrive.

What one host sends and another never acknowledges is a dead link between the two. A host
that is one end of all of them is cut off itself; of a single link nobody can say which end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from frtop_probe import wire
from frtop_probe.ring.rank_ranges import fold
from frtop_tui.diagnosis.judged import Verdict, Why
from frtop_tui.diagnosis.phrases import op_text, wait_text
from frtop_tui.diagnosis.point import Point
from frtop_tui.job.model import Rank
from frtop_tui.job.naming import folded, listed

_MOST_TOLD: Final = 4


def by_links(made: Verdict, views: Mapping[int, Rank], point: Point) -> Verdict:
    """A verdict on a `point` that nobody is known to miss, in the light of its dead links."""
    severed = _severed(views, point)
    if severed is None:
        return made
    evidence = (*made.evidence, *severed.evidence)
    if made.kind != "stuck":
        return replace(made, evidence=evidence)
    waiting = set(point.waiting) - set(severed.ranks)
    return replace(
        made,
        culprits=severed.ranks,
        headline=f"{severed.head}; {wait_text(waiting)}",
        why=Why(
            "unreachable",
            "network",
            f"nothing gets through between {severed.between}: what is sent is never acknowledged",
        ),
        next=severed.next,
        victims=fold(waiting),
        evidence=evidence,
    )


@dataclass(frozen=True, slots=True)
class _Severed:
    """What to say first, and the ranks of the host that is cut off, if it is one."""

    head: str
    between: str
    next: str
    evidence: tuple[str, ...]
    ranks: tuple[int, ...] = ()


def _severed(views: Mapping[int, Rank], point: Point) -> _Severed | None:
    if point.op.p2p or point.op.pseudo:
        return None  # whose links it needs is not known
    members = {rank: views[rank] for rank in point.members if rank in views}
    if not any(map(_dead, members.values())):
        return None
    ends = _Ends(members, apart=len({view.host for view in views.values()}) > 1)
    since = {wait.rank: wait.op.issued_ns for wait in point.waits}
    found = {
        (view.rank, link): (ends.of(view), ends.beyond(link))
        for view in members.values()
        for link in _dead(view, since.get(view.rank, 0))
    }
    # What a rank has to do with the world outside finishes no op, or keeps none.
    inside = {pair for pair in found.values() if ends.known.issuperset(pair)}
    links = {frozenset(pair) for pair in inside or found.values() if len(set(pair)) == 2}
    if not links:
        return None
    evidence = tuple(
        f"rank {rank}: {link.remote} has not acknowledged {link.queued} bytes,"
        f" sent {link.again + 1} times"
        for rank, link in [one for one in found if frozenset(found[one]) in links][:_MOST_TOLD]
    )
    common = frozenset[str].intersection(*links)
    if len(links) > 1 and len(common) == 1:
        (end,) = common
        others = sorted(frozenset[str].union(*links) - common)
        ranks = tuple(sorted(rank for rank, view in members.items() if ends.of(view) == end))
        return _cut_off(point, end, ranks, f"{end} and {listed(others)}", evidence)
    return _Severed(
        f"all have entered {op_text(point)}, and the network does not bring it about",
        listed([" and ".join(sorted(pair)) for pair in sorted(links, key=sorted)]),
        "the cables and switches between them: `ip -br link`, `ip -s link`; ping one another",
        evidence,
    )


class _Ends:
    """What dead links are between: hosts, or ranks where all are on one host."""

    def __init__(self, members: Mapping[int, Rank], *, apart: bool) -> None:
        self._apart = apart
        self.known = frozenset(self.of(view) for view in members.values())
        self._owners = {
            (link.local, link.remote): view for view in members.values() for link in _dead(view)
        }
        self._homes = {
            address: view.host
            for view in members.values()
            if view.snapshot is not None
            for address in view.snapshot.addresses
        }

    def of(self, view: Rank) -> str:
        return view.host if self._apart else f"rank {view.rank}"

    def beyond(self, link: wire.Link) -> str:
        """The other end: whose it is if that one has the same dead link, else its host."""
        owner = self._owners.get((link.remote, link.local))
        if owner is not None:
            return self.of(owner)
        address = _address(link.remote)
        return self._homes.get(address, address) if self._apart else link.remote


def _cut_off(
    point: Point, end: str, ranks: tuple[int, ...], between: str, evidence: tuple[str, ...]
) -> _Severed:
    """`ranks` are empty where nobody has seen the host from inside."""
    named = folded(ranks) if ranks else end
    name = named if end.startswith(named) else f"{named} on {end}"
    return _Severed(
        f"{name} cannot be reached by the others, in {op_text(point)} that all have entered",
        between,
        f"on the host of {name}: ip -br link; ip -s link; then its cable and switch, its firewall",
        evidence,
        ranks,
    )


def _dead(view: Rank, since_ns: int = 0) -> tuple[wire.Link, ...]:
    """As of the last look at a rank that lives, if that is not of an earlier wait."""
    look = view.snapshot
    return (
        look.links if look is not None and view.exit_info is None and look.at_ns > since_ns else ()
    )


def _address(end: str) -> str:
    """Without the port."""
    return end.rpartition(":")[0].strip("[]")

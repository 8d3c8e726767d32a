"""Dead links: connections whose other side acknowledges nothing, where all entered an op.

A host at one end of all dead links is cut off itself. Of a single link nobody can say which end
is at fault.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from frtop_probe import wire
from frtop_tui.diagnosis.graph.wait_node import WaitNode
from frtop_tui.job.model import Rank


class DeadLinks(Struct, frozen=True):
    """Dead links between hosts, or between ranks where all are on one host.

    Attributes:
        pairs: both ends of each dead link.
        seen: each rank that sees one, and the link.
        end: the end that all links share, "" if there is none.
        ranks: members at that end; empty where nobody has seen its host from inside.
    """

    pairs: tuple[tuple[str, str], ...]
    seen: tuple[tuple[int, wire.DeadConnection], ...]
    end: str = ""
    ranks: tuple[int, ...] = ()


def dead_links(views: Mapping[int, Rank], node: WaitNode) -> DeadLinks | None:
    """The dead links among the members of a collective; None if there are none."""
    if node.op.p2p or node.op.pseudo:
        return None  # which links it needs is not known
    members = {rank: views[rank] for rank in node.members if rank in views}
    if not any(map(_dead, members.values())):
        return None
    ends = _Ends(members, apart=len({view.host for view in views.values()}) > 1)
    since = {wait.rank: wait.op.issued_ns for wait in node.waits}
    found = {
        (view.rank, link): (ends.of(view), ends.beyond(link))
        for view in members.values()
        for link in _dead(view, since.get(view.rank, 0))
    }
    # A rank's links to the world outside of the job keep no op of the job waiting.
    inside = {pair for pair in found.values() if ends.known.issuperset(pair)}
    links = {frozenset(pair) for pair in inside or found.values() if len(set(pair)) == 2}
    if not links:
        return None
    pairs = tuple((a, b) for a, b in sorted(map(sorted, links)))
    seen = tuple(one for one in found if frozenset(found[one]) in links)
    common = frozenset[str].intersection(*links)
    if len(links) == 1 or len(common) != 1:
        return DeadLinks(pairs, seen)
    (end,) = common
    ranks = tuple(sorted(rank for rank, view in members.items() if ends.of(view) == end))
    return DeadLinks(pairs, seen, end, ranks)


class _Ends:
    """Names the ends of links: hosts, or ranks where all are on one host."""

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

    def beyond(self, link: wire.DeadConnection) -> str:
        """The other end: the rank that has the same dead link, else its host."""
        owner = self._owners.get((link.remote, link.local))
        if owner is not None:
            return self.of(owner)
        address = link.remote.rpartition(":")[0].strip("[]")
        return self._homes.get(address, address) if self._apart else link.remote


def _dead(view: Rank, since_ns: int = 0) -> tuple[wire.DeadConnection, ...]:
    """Dead links in the last snapshot of a living rank, if it was taken during this wait."""
    look = view.snapshot if view.exit_info is None else None
    return look.dead_connections if look is not None and look.at_ns > since_ns else ()

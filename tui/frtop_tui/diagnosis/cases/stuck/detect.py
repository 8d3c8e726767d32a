"""Ops that all members have entered and that do not finish."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from msgspec import Struct

from frtop_probe import wire
from frtop_tui.diagnosis.blocked.group_frontier import last_issued_number, local_group_id
from frtop_tui.diagnosis.cases.context import Context
from frtop_tui.diagnosis.cases.mismatch.detect import unaligned
from frtop_tui.diagnosis.causes import Cause
from frtop_tui.diagnosis.evidence.absence_cause import absence_cause
from frtop_tui.diagnosis.evidence.c10d_call import is_connecting
from frtop_tui.diagnosis.evidence.progress import progress_of
from frtop_tui.diagnosis.evidence.rank_activity import working_location
from frtop_tui.diagnosis.evidence.working_thread import working_stack
from frtop_tui.diagnosis.finding import Detail, Finding, facts_of
from frtop_tui.diagnosis.graph.wait_node import WaitNode
from frtop_tui.diagnosis.model import OpName
from frtop_tui.job.model import Rank


class DeadLinks(Struct, frozen=True):
    """Dead links between hosts, or between ranks if all are on one host."""

    pairs: tuple[tuple[str, str], ...]  # both ends of each dead link
    seen: tuple[tuple[int, wire.DeadConnection], ...]  # ranks that see one, and the link
    end: str = ""  # the end that all links share, "" if there is none
    ranks: tuple[int, ...] = ()  # members at that end; empty if its host was not seen


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
    # A rank's links to the world outside keep no op of the job waiting.
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
    """Names the ends of links: hosts, or ranks if all are on one host."""

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
        """The other end: the rank with the same dead link, else its host."""
        owner = self._owners.get((link.remote, link.local))
        if owner is not None:
            return self.of(owner)
        address = link.remote.rpartition(":")[0].strip("[]")
        return self._homes.get(address, address) if self._apart else link.remote


def _dead(view: Rank, since_ns: int = 0) -> tuple[wire.DeadConnection, ...]:
    """Dead links in a living rank's last snapshot, if taken during this wait."""
    look = view.snapshot if view.exit_info is None else None
    return look.dead_connections if look is not None and look.at_ns > since_ns else ()


class DeviceCalls(Struct, frozen=True):
    """Where the members of a node are that have all issued its op."""

    inside: tuple[int, ...]  # hosts whose call has not returned
    returned: tuple[int, ...]  # hosts whose call has
    first: bool = False  # the group's first op, which creates its communicator

    @property
    def odd(self) -> tuple[int, ...]:
        """The few that are not where most are; none if there is no majority."""
        few, most = sorted((self.inside, self.returned), key=len)
        return few if 2 * len(few) < len(few) + len(most) else ()


def device_calls(views: Mapping[int, Rank], node: WaitNode) -> DeviceCalls | None:
    """Which members are inside the call of `node`; None if it does not run on devices."""
    if not node.op.on_device or node.op.p2p:
        return None
    inside = tuple(wait.rank for wait in node.waits if not wait.op.enqueued)
    returned = tuple(rank for rank in node.members if rank not in inside and rank in views)
    return DeviceCalls(inside, returned, node.number == 1)


_TOGETHER: Final = ("all_reduce", "all_gather", "reduce_scatter", "barrier", "all_to_all")
"""Ops that no device completes before all members have entered."""
_ON_HOSTS: Final = ("gloo", "mpi", "fake")
"""Backends without devices: their ops run in threads, and their ends are noted late."""


class DeviceLag(Struct, frozen=True):
    """Devices of `ranks` are still at op `number`, or have not even `begun` it.

    Those of the others have completed it, or at least begun it.
    """

    ranks: tuple[int, ...]
    number: int
    begun: bool = True


def device_lag(views: Mapping[int, Rank], node: WaitNode) -> DeviceLag | None:
    """Members whose devices are at an op that those of the others have passed.

    None unless completion is known, all have issued the op of `node`, and its backend has devices.
    """
    group = node.group
    backend = group.backend if group is not None else ""
    on_hosts = not backend or any(name in backend for name in _ON_HOSTS)
    on_hosts &= not node.op.on_device
    if group is None or node.number is None or on_hosts:
        return None
    oldest: dict[int, wire.Op | None] = {}
    for rank in node.members:
        view = views.get(rank)
        if view is None or last_issued_number(view, group) < node.number:
            return None
        mine = local_group_id(view, group)
        if not (view.evidence.has_completion or _is_watched(view, mine)):
            return None
        unfinished = (op for op in view.pending if op.group == mine and not op.p2p)
        oldest[rank] = min(unfinished, key=lambda op: op.number, default=None)
    first = min((op.number for op in oldest.values() if op is not None), default=0)
    last = {rank: op for rank, op in oldest.items() if op is not None and op.number == first}
    if len(last) < len(oldest):
        return DeviceLag(tuple(last), first) if _are_few(last, len(oldest)) else None
    waiting = tuple(rank for rank, op in last.items() if not op.started_ns)
    if len(waiting) == len(last) or 2 * len(waiting) > len(last):
        return None
    known = all(_tells_starts(views[rank]) for rank in waiting)
    return DeviceLag(waiting, first, begun=False) if waiting and known else None


def _is_watched(view: Rank, group: int | None) -> bool:
    """Whether its recorder sees how far the device is, and no op is still in its call."""
    progress = view.group_progress.get(group) if group is not None else None
    if progress is None or not progress.watched:
        return False
    return all(op.enqueued for op in view.pending if op.group == group and op.on_device)


def _are_few(last: Mapping[int, wire.Op], members: int) -> bool:
    """Whether these lag, rather than the others being ahead."""
    together = all(
        op.signature is not None and op.signature.kind.startswith(_TOGETHER) for op in last.values()
    )
    return 2 * len(last) < members or (together and 2 * len(last) == members)


def _tells_starts(view: Rank) -> bool:
    """Whether its recorder notes starts: not if completed ops have none."""
    ops = view.snapshot.ops if view.snapshot is not None else ()
    return any(op.started_ns for op in ops) or not any(op.done_ns for op in ops)


class Rendezvous(Detail, frozen=True):
    """Where the ranks of a first `init_process_group` are."""

    # "store" while some connect to it, "peers" afterwards
    at: Literal["store", "peers", "unknown"]
    job: wire.Job
    ranks: tuple[int, ...]  # whose stacks show it; if "unknown", the first waiting rank
    several_hosts: bool  # whether ranks run on more than one host

    @property
    def cause(self) -> Cause:
        return "transport" if self.at == "peers" else "rendezvous"


def rendezvous(views: Mapping[int, Rank], node: WaitNode) -> Rendezvous | None:
    """Where the ranks of a rendezvous are; None if `node` is not one."""
    if not node.op.pseudo or node.kind != "init_process_group":
        return None
    waiting = [views[rank] for rank in sorted(node.waiting)]
    job = waiting[0].identity.job
    several = len({view.host for view in views.values()}) > 1
    seen = [view for view in waiting if working_location(view) is not None]
    connecting = tuple(view.rank for view in seen if is_connecting(working_stack(view)))
    if connecting:
        return Rendezvous("store", job, connecting, several)
    if seen:
        return Rendezvous("peers", job, tuple(view.rank for view in seen), several)
    return Rendezvous("unknown", job, (waiting[0].rank,), several)


Reason = Literal[
    "message",  # its other half was issued, or it is not known whether or by which rank
    "single dump",  # without an age
    "unobserved",  # a member that entered it no longer reports
    "device",  # completion is not known, and no stack is in the op itself
    "unseen",  # its arguments are not known: another root or size may be the cause
]


class Stuck(Detail, frozen=True):
    """All have entered `node`: one of them is stopped, or links or the transport are dead."""

    node: WaitNode
    stopped: int | None = None
    links: DeadLinks | None = None
    rendezvous: Rendezvous | None = None
    calls: DeviceCalls | None = None


class Doubt(Detail, frozen=True):
    """Why an op may not be stuck, and the ranks that show it."""

    reason: Reason
    ranks: tuple[int, ...] = ()


class InDoubt(Detail, frozen=True):
    """All have entered `node`, but it may not be stuck."""

    node: WaitNode
    doubt: Doubt
    links: DeadLinks | None = None


class LaggingDevices(Detail, frozen=True):
    """All have issued `node`, but the devices of a few lag behind."""

    node: WaitNode
    lag: DeviceLag


class Unobserved(Detail, frozen=True):
    """All absent members of `node` are unobserved: it may be any of them, or none."""

    node: WaitNode
    links: DeadLinks | None


def find_unobserved(context: Context, node: WaitNode) -> Finding:
    """The finding on a node whose absent members never reported, or wait past c10d."""
    views = context.ranks
    unseen = any(
        rank not in views or views[rank].state == "unreachable" for rank in node.unobserved
    )
    return Finding(
        kind="undecided",
        detail=Unobserved(node, dead_links(views, node)),
        key=("unobserved", node.id),
        victims=frozenset(node.waiting),
        cause="unreachable" if unseen else "unobserved",
        progress="unknown",
        **facts_of([node], context.now_ns),
    )


def find(context: Context, node: WaitNode) -> Finding:
    """The finding on a node that every member has entered."""
    return unaligned(context, node) or _lagging_devices(context, node) or _stuck(context, node)


def _lagging_devices(context: Context, node: WaitNode) -> Finding | None:
    lag = device_lag(context.ranks, node)
    if lag is None:
        return None
    facts = facts_of([node], context.now_ns)
    facts["op"], facts["issuer"] = OpName(node.kind, lag.number), None
    return Finding(
        kind="stuck",
        detail=LaggingDevices(node, lag),
        key=("device", node.id, lag.ranks),
        culprits=lag.ranks,
        victims=frozenset(rank for rank in node.members if rank not in lag.ranks),
        cause="device",
        progress=progress_of(context.ranks[lag.ranks[0]], context.now_ns).progress,
        **facts,
    )


def _stuck(context: Context, node: WaitNode) -> Finding:
    views = context.ranks
    halted = [rank for rank in node.members if rank in views and views[rank].state == "stopped"]
    stopped = halted[0] if len(halted) == 1 else None
    links, doubt, meeting = None, None, None
    if stopped is None:
        links, doubt = dead_links(views, node), _doubt(views, node)
        unseen = not node.op.pseudo and any(
            not views[wait.rank].evidence.has_signatures for wait in node.waits
        )
        if doubt is None and links is None and unseen:
            doubt = Doubt("unseen")
    if doubt is not None:
        victims = (other for other in context.overdue if node in other.successors)
        nodes = [node, *victims]
        return Finding(
            kind="undecided",
            detail=InDoubt(node, doubt, links),
            key=("stuck", node.id, ()),
            victims=frozenset(rank for one in nodes for rank in one.waiting),
            cause="unreachable" if node.unobserved else "unknown",
            progress="unknown",
            **facts_of(nodes, context.now_ns),
        )
    culprits: tuple[int, ...] = ()
    cause: Cause = "transport"
    calls = None
    if stopped is not None:
        culprits, cause = (stopped,), absence_cause(views[stopped]).cause
    elif links is not None:
        culprits, cause = links.ranks, "cut_off"
    elif (meeting := rendezvous(views, node)) is not None:
        cause = meeting.cause
    elif (calls := device_calls(views, node)) is not None:
        culprits, cause = calls.odd if calls.inside else (), "device"
    return Finding(
        kind="stuck",
        detail=Stuck(node, stopped, links, meeting, calls),
        key=("stuck", node.id, culprits),
        culprits=culprits,
        victims=frozenset(node.waiting).difference(culprits),
        cause=cause,
        **facts_of([node], context.now_ns),
    )


def _doubt(views: Mapping[int, Rank], node: WaitNode) -> Doubt | None:
    """The first reason to doubt that `node` is stuck."""
    if node.op.p2p:
        return Doubt("message")
    if node.undated:
        return Doubt("single dump")
    unreachable = [
        rank for rank in node.members if rank in views and views[rank].state == "unreachable"
    ]
    if unreachable:
        return Doubt("unobserved", tuple(unreachable))
    places = (working_location(views[rank]) for rank in node.waiting)
    if node.op.tracked or any(place and place.kind == "collective" for place in places):
        return None
    return Doubt("device")

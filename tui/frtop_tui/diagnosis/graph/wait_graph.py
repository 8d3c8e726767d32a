"""The wait-for graph: in which ops ranks wait, and which members have not entered them.

An edge leads from a node to the nodes in which its absent members are themselves blocked. Paths end
at members that are free, ended or unobserved, at nodes that every member has entered, or in a
deadlock.

Nodes are kept from frame to frame. The absent members of a node are sorted again only when a rank
enters or leaves it, its group moves on, or a fact about an absent member changes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import chain
from typing import TypeVar

from frtop_probe import wire
from frtop_tui.diagnosis.blocked.group_frontier import (
    GroupFrontier,
    local_group_id,
    pending_numbers,
)
from frtop_tui.diagnosis.blocked.rank_index import RankIndex
from frtop_tui.diagnosis.blocked.wait import NEVER, WaitStage
from frtop_tui.diagnosis.evidence.rank_activity import known_until_ns
from frtop_tui.diagnosis.evidence.rpc_call import RpcCall, callee, is_held_by_itself
from frtop_tui.diagnosis.evidence.unobserved_wait import unobserved_wait
from frtop_tui.diagnosis.evidence.working_thread import in_handler
from frtop_tui.diagnosis.graph.messages import answers, other_half
from frtop_tui.diagnosis.graph.wait_node import (
    NodeId,
    RankSet,
    WaitNode,
    call_id,
    node_id,
    rank_set,
)
from frtop_tui.job.model import Rank


def deadlocks(nodes: Iterable[WaitNode]) -> list[list[WaitNode]]:
    """Cycles of nodes that wait for each other, with no edge that leads out of them."""
    known = dict.fromkeys(nodes)
    held = {p for p in known if p.blocked_at and not (p.free or p.ended or p.unobserved)}
    inner = {p for p in held if known.keys() >= set(p.successors)}
    done = leading_to(known.keys() - inner, known)
    found = list[list[WaitNode]]()
    for start in known:
        path: dict[WaitNode, None] = {}
        here = start
        while here not in done and here not in path:
            path[here] = None
            here = next(iter(here.blocked_at.values()))
        if here in path:
            on_path = [*path]
            found.append(on_path[on_path.index(here) :])
        done |= path.keys()
    return found


def leading_to(endpoints: Iterable[WaitNode], nodes: Iterable[WaitNode]) -> set[WaitNode]:
    """`endpoints`, and every node with a path to one of them."""
    back: dict[WaitNode, list[WaitNode]] = {}
    for node in nodes:
        for blocked_at in node.successors:
            back.setdefault(blocked_at, []).append(node)
    reached = set(endpoints)
    todo = list(reached)
    while todo:
        for before in back.get(todo.pop(), ()):
            if before not in reached:
                reached.add(before)
                todo.append(before)
    return reached


def nodes_awaiting(ranks: Iterable[int], nodes: Sequence[WaitNode]) -> list[WaitNode]:
    """The `nodes` that wait for one of `ranks`, directly or through others."""
    wanted = set(ranks)
    reached = leading_to([p for p in nodes if not wanted.isdisjoint(p.free)], nodes)
    return [node for node in nodes if node in reached]


SETTLED_NS = 1_000_000_000
"""A rank that entered its own wait more recently is on its way, not blocked."""
_Found = TypeVar("_Found")


class _Validity:
    """How long the sorted absent members of a node stay valid."""

    __slots__ = ("frontier", "until_ns", "version", "watched")

    def __init__(self, watched: Iterable[int], frontier: GroupFrontier | None) -> None:
        self.watched = set(watched)
        self.frontier = frontier
        self.version = frontier.version if frontier is not None else 0
        self.until_ns = NEVER

    def is_valid(self, moved: set[int], now_ns: int) -> bool:
        return (
            (self.frontier is None or self.frontier.version == self.version)
            and now_ns < self.until_ns
            and self.watched.isdisjoint(moved)
        )


class WaitGraph:
    """All nodes of a job; absent members are sorted only on request."""

    def __init__(self, index: RankIndex) -> None:
        self.all: dict[NodeId, WaitNode] = {}
        self._index = index
        self._everybody: tuple[int, ...] = ()
        self._at: dict[int, WaitNode] = {}
        self._valid: dict[WaitNode, _Validity] = {}
        self._next_ns = NEVER  # when time alone invalidates one of them
        self._changes = 0
        self._in_stage: dict[WaitStage, tuple[int, int, list[WaitNode]]] = {}
        self._known: dict[Hashable, tuple[Sequence[WaitNode], object]] = {}
        self._known_at = 0
        self._quiet: Mapping[str, int] = {}
        self._open: set[WaitNode] = set()  # messages for which it is not known which rank is absent
        self._only_free: int | None = None
        self._looked_for_free = False

    def update(self, now_ns: int, quiet: Mapping[str, int] | None = None) -> None:
        """Follows the index, after the index's own update.

        `quiet` are hosts that have not reported for a moment, and when they last did.
        """
        self._quiet = quiet or {}
        index = self._index
        if index.moved or index.renumbered:
            self._looked_for_free = False
            for node in self._open:
                self._valid.pop(node, None)
            self._changes += bool(self._open)
            self._open.clear()
        if index.renumbered:
            self._everybody = tuple(index.ranks)
            for node in self.all.values():
                node.everybody = self._everybody
        for rank in index.rewaited:
            self._move(rank)
        if index.renumbered or index.recorrected:
            self._valid.clear()
            self._changes += 1
        elif index.moved or now_ns >= self._next_ns:
            moved, known = index.moved, self._valid.items()
            for node in [node for node, one in known if not one.is_valid(moved, now_ns)]:
                # The result is usually the same: a rank that was looked at still waits.
                self._changes += self._sort(node, now_ns)
            self._next_ns = min((one.until_ns for one in self._valid.values()), default=NEVER)

    def nodes_where(self, stage: WaitStage, now_ns: int) -> list[WaitNode]:
        """Nodes where at least one wait has reached `stage`."""
        changes, until_ns, found = self._in_stage.get(stage, (-1, 0, []))
        if changes != self._changes or now_ns > until_ns:
            begins = {node: node.begins_ns(stage, now_ns) for node in self.all.values()}
            found = [node for node, at_ns in begins.items() if now_ns > at_ns]
            until_ns = min((at_ns for at_ns in begins.values() if now_ns <= at_ns), default=NEVER)
            self._in_stage[stage] = (self._changes, until_ns, found)
        if self._quiet or self._index.stale:
            # What has happened there since is not known: a wait does not age in silence.
            found = [node for node in found if node.has_begun(stage, self._known_until_ns)]
        return found

    def _known_until_ns(self, rank: int) -> int:
        view, wait = self._index.corrected[rank], self._index.waits.get(rank)
        reported_ns = self._quiet.get(view.host, NEVER)
        if wait is None or rank not in self._index.stale:
            return reported_ns
        counted = not (wait.op.p2p or wait.op.pseudo)
        return min(reported_ns, known_until_ns(view, wait.op.group if counted else None))

    def overdue(self, now_ns: int) -> list[WaitNode]:
        """Nodes with an overdue wait, and those they lead to, the oldest first."""
        start = self.nodes_where("overdue", now_ns)
        return self._once("overdue", start, lambda: oldest_first(self._follow(start, now_ns)))

    def settled(self, now_ns: int) -> list[WaitNode]:
        """Nodes where ranks have surely waited for some seconds, and those they lead to."""
        start = self.nodes_where("settled", now_ns)
        return self._once("settled", start, lambda: in_order(self._follow(start, now_ns)))

    def long_waits(self, now_ns: int) -> list[WaitNode]:
        """Nodes where a rank has waited unusually long, for seconds, the oldest first.

        Not a finding yet: a rank that has been in its first barrier for 25 s may hang or be early.
        """
        return oldest_first(self.nodes_where("lasting", now_ns))

    def endpoints(self, nodes: Sequence[WaitNode]) -> list[WaitNode]:
        """The `nodes` where the blame ends for at least one absent member."""
        return self._once("ends", nodes, lambda: [p for p in nodes if p.free or not p.blocked_at])

    def deadlocks(self, nodes: Sequence[WaitNode]) -> list[list[WaitNode]]:
        """Deadlocks among `nodes`, each with its nodes in the order in which they wait."""
        return self._once("deadlocks", nodes, lambda: deadlocks(nodes))

    def nodes_awaiting(self, ranks: Sequence[int], nodes: Sequence[WaitNode]) -> list[WaitNode]:
        """The `nodes` that wait for one of `ranks`, directly or through others."""
        what = ("awaiting", *ranks)
        return self._once(what, nodes, lambda: nodes_awaiting(ranks, nodes))

    def rank_set(self, nodes: Sequence[WaitNode]) -> RankSet:
        """All ranks that wait at `nodes`."""
        waiting = chain.from_iterable(node.waiting for node in nodes)
        return self._once(("rank set", nodes[0].id), nodes, lambda: rank_set(waiting))

    def at(self, ranks: Iterable[int], now_ns: int) -> list[WaitNode]:
        """Nodes that wait for one of `ranks`, however briefly."""
        wanted = set(ranks)
        found = []
        for node in self.all.values():
            # A message waits for one rank only, however large its group.
            if wanted.isdisjoint((node.peer,) if node.op.p2p else node.members):
                continue
            self.look_into(node, now_ns)
            if not wanted.isdisjoint((*node.free, *node.ended, *node.blocked_at)):
                found.append(node)
        return in_order(found)

    def look_into(self, node: WaitNode, now_ns: int) -> None:
        """Sorts the absent members, unless that is still valid."""
        if node not in self._valid:
            self._sort(node, now_ns)
            self._next_ns = min(self._next_ns, self._valid[node].until_ns)

    def _sort(self, node: WaitNode, now_ns: int) -> bool:
        """Sorts the absent members again; returns whether the result has changed."""
        before = (node.free, node.ended, node.unobserved, node.blocked_at)
        absent, sorting = self._absent(node)
        self._valid[node] = sorting
        free, ended, unobserved = list[int](), list[int](), list[int]()
        blocked_at: dict[int, WaitNode] = {}
        index = self._index
        for rank in absent:
            view = index.corrected.get(rank)
            if view is None or view.state == "unreachable" or self._is_unknown(view, node):
                unobserved.append(rank)
            elif view.exit_info is not None or rank in index.dead:
                ended.append(rank)  # or about to end, by an uncaught exception
            elif node.rpc is not None and not (rank == node.callee and in_handler(view)):
                # What its other threads wait for does not count.
                held = rank == node.callee and is_held_by_itself(view)
                (free if held else unobserved).append(rank)
            else:
                wait, elsewhere = index.waits.get(rank), self._at.get(rank)
                if wait is None or wait.background or elsewhere is None or elsewhere is node:
                    is_known = unobserved_wait(view) is None
                    (free if is_known else unobserved).append(rank)
                elif wait.has_lasted(SETTLED_NS, now_ns):
                    blocked_at[rank] = elsewhere
                else:
                    free.append(rank)
                    sorting.until_ns = min(sorting.until_ns, wait.since_ns + SETTLED_NS)
        now = (free, ended, unobserved, blocked_at)
        if now == before:
            return False
        node.free, node.ended, node.unobserved, node.blocked_at = now
        return True

    def _is_unknown(self, view: Rank, node: WaitNode) -> bool:
        """Whether a living rank may have entered the op of a node by now, unseen."""
        if _is_uncounted(view, node):
            return True
        if view.rank not in self._index.stale or view.exit_info is not None:
            return False
        counted = node.group is not None and node.number is not None
        own = local_group_id(view, node.group) if counted and node.group is not None else None
        return known_until_ns(view, own) < node.known_since_ns

    def _once(
        self, what: Hashable, nodes: Sequence[WaitNode], find: Callable[[], _Found]
    ) -> _Found:
        """The known result for `nodes`, if no node has changed since; else a new one."""
        if self._known_at != self._changes:
            self._known, self._known_at = {}, self._changes
        known = self._known.get(what)
        if known is None or known[0] != nodes:
            known = self._known[what] = (nodes, find())
        return known[1]  # type: ignore[return-value]

    def _follow(self, start: Iterable[WaitNode], now_ns: int) -> set[WaitNode]:
        seen: set[WaitNode] = set()
        todo = list(start)
        while todo:
            node = todo.pop()
            if node not in seen:
                seen.add(node)
                self.look_into(node, now_ns)
                todo.extend(node.blocked_at.values())
        return seen

    def _move(self, rank: int) -> None:
        wait, before = self._index.waits.get(rank), self._at.pop(rank, None)
        self._changes += 1
        key = node_id(wait) if wait is not None else None
        if before is not None and before.id != key and before.leave(rank):
            del self.all[before.id]
            self._valid.pop(before, None)
            self._open.discard(before)
        if wait is None or key is None:
            return
        if key not in self.all:
            self.all[key] = WaitNode(key, self._everybody)
        self._at[rank] = node = self.all[key]
        node.arrive(wait)

    def _absent(self, node: WaitNode) -> tuple[list[int], _Validity]:
        """Which members have not entered, and how long that is valid."""
        group = node.group
        if node.rpc is not None:
            return self._absent_callee(node, node.rpc)
        if node.call is not None and node.peer is None:
            # It is not known which calls are the same op: only ranks in no call are absent.
            ranks, waits = self._index.corrected, self._index.waits
            return [rank for rank in ranks if rank not in waits], _Validity(ranks, None)
        if node.call is not None:
            return self._absent_peer(node)
        if group is None or node.op.pseudo:
            return self._absent_from_pseudo(node)
        if node.op.p2p:
            return self._absent_peer(node)
        frontier = self._index.frontier(group)
        if node.number is not None:
            absent = [*frontier.not_issued(node.number), *frontier.never_observed]
        else:
            views = self._index.corrected
            known = {m for m in frontier.issued if pending_numbers(views[m], group)}
            absent = [m for m in frontier.members if m not in known]
        return sorted(absent), _Validity(absent, frontier)

    def _absent_callee(self, node: WaitNode, call: RpcCall) -> tuple[list[int], _Validity]:
        """The rank that works on a remote call; any other rank if that is not known."""
        views, caller = self._index.corrected, node.waits[0].rank
        node.callee = callee(call, caller, views)
        others = [rank for rank in views if rank != caller]
        return ([node.callee] if node.callee is not None else others), _Validity(views, None)

    def _absent_from_pseudo(self, node: WaitNode) -> tuple[list[int], _Validity]:
        """For `init_process_group` and calls that name no ranks: the whole world has to enter."""
        views = self._index.corrected
        everybody = set(node.callers or ())
        if not everybody:
            world = max((v.identity.job.world_size for v in views.values()), default=0)
            everybody = {*range(world), *views}
        absent = [rank for rank in everybody if not _is_inside(views.get(rank), node)]
        return sorted(absent), _Validity(everybody, None)

    def _absent_peer(self, node: WaitNode) -> tuple[list[int], _Validity]:
        """The peer of a send or receive, unless its half is pending already."""
        rank, peer = node.waits[0].rank, node.peer
        if peer == rank:
            return [], _Validity((), None)
        if peer is None:
            return self._absent_from_open(node)
        view = self._index.corrected.get(peer)
        if view is None:
            return [peer], _Validity((peer,), None)
        # Its own receives from any source count, too.
        half = other_half(view, node, self._index.corrected[rank])
        node.answered, node.by_elimination = half == "issued", False
        if half in ("issued", "missing"):
            return ([peer] if half == "missing" else []), _Validity((peer, rank), None)
        wait, halves = self._index.waits.get(peer), view.pending
        if wait is not None and wait.call is not None and wait.peer is not None:
            halves = (wait.op,)
        # Its half may be among the pending ops that its agent left out.
        there = view.pending_more > 0 or any(
            answers(other, node) and not self._has_left(peer, other) for other in halves
        )
        if there or half == "open":
            return self._absent_from_open(node)
        return [peer], _Validity((peer, rank), None)

    def _absent_from_open(self, node: WaitNode) -> tuple[list[int], _Validity]:
        """The only rank in no op, if all others are in one and this wait may lead to it.

        Applies to a message if it is not known whether its other half was issued, or by which rank.
        """
        self._open.add(node)
        free = self._find_only_free()
        node.by_elimination = free is not None and self._may_lead_to(free, node)
        absent = [free] if node.by_elimination and free is not None else []
        return absent, _Validity(absent, None)

    def _find_only_free(self) -> int | None:
        """The only rank in no op, if all others surely are in one."""
        if not self._looked_for_free:
            self._looked_for_free, self._only_free = True, None
            views, waits = self._index.corrected, self._index.waits
            free = [rank for rank in views if (w := waits.get(rank)) is None or w.background]
            if len(free) == 1 and all(wait.sure for wait in waits.values()):
                view = views[free[0]]
                is_there = view.state not in ("dead", "done", "starting", "unreachable")
                if is_there and len(views) >= view.identity.job.world_size:
                    self._only_free = view.rank
        return self._only_free

    def _may_lead_to(self, rank: int, node: WaitNode) -> bool:
        """Whether a wait may end at `rank`, through others that wait."""
        seen, here = set[WaitNode](), node
        while here not in seen:
            seen.add(here)
            if not here.op.p2p or here.peer is None:
                return rank in here.members
            if here.peer == rank:
                return True
            after = self._at.get(here.peer)
            if after is None:
                return False
            here = after
        return False

    def _has_left(self, rank: int, half: wire.Op) -> bool:
        """Whether a rank has gone on to wait elsewhere since it issued its half of a message.

        The end of that half may not be noted yet: with both halves issued, the message is
        delivered.
        """
        wait = self._index.waits.get(rank)
        if wait is None or half.sync or not wait.sure or wait.background:
            return False
        # Which of several messages it waits for is a guess.
        known = wait.op.sync or not wait.op.p2p
        return known and wait.op.sequence > half.sequence


def in_order(nodes: Iterable[WaitNode]) -> list[WaitNode]:
    """By the first waiting rank, which no two nodes share."""
    return sorted(nodes, key=lambda node: node.waits[0].rank)


def oldest_first(nodes: Iterable[WaitNode]) -> list[WaitNode]:
    """Undated nodes first, by their number of waiting ranks; then by age."""
    return sorted(
        nodes, key=lambda n: (-len(n.waits) if n.undated else 0, n.since_ns, n.waits[0].rank)
    )


def _is_uncounted(view: Rank, node: WaitNode) -> bool:
    """Whether a living rank's number is unknown where only numbers show which ranks are absent."""
    evidence = view.evidence
    unknown = evidence.has_ages and not evidence.has_numbers and view.exit_info is None
    return unknown and node.number is not None


def _is_inside(view: Rank | None, node: WaitNode) -> bool:
    """Whether a rank is in the call at `node`, or past it where the call is the world's first."""
    if view is None:
        return False
    through = node.kind in ("init_process_group", "init_rpc") and bool(view.groups)
    return through or any(op.pseudo and call_id(op) == node.id for op in view.pending)

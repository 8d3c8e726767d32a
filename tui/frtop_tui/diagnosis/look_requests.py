"""Which ranks to look at now: suspects and a few waiting ranks, never all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, islice
from typing import Final, NamedTuple

from frtop_tui.diagnosis.blocked.wait import patience_ns
from frtop_tui.diagnosis.cases.context import Context
from frtop_tui.diagnosis.cases.mismatch.detect import OpsDiffer
from frtop_tui.diagnosis.evidence.dataloader_worker import children_in_question
from frtop_tui.diagnosis.evidence.rank_activity import last_activity_ns
from frtop_tui.diagnosis.finding import Finding
from frtop_tui.diagnosis.graph.wait_graph import oldest_first
from frtop_tui.diagnosis.graph.wait_node import WaitNode
from frtop_tui.diagnosis.thresholds import EARLY_NS, SUSPECTS_PER_NODE
from frtop_tui.job.model import ObservedFrame, Rank

AGAIN_NS: Final = 1_000_000_000
SETTLED_AGAIN_NS: Final = 5_000_000_000
"""A confirmed culprit is known already, so it is looked at less often."""
AT_REST_AGAIN_NS: Final = 30_000_000_000
MOST: Final = 16
MOST_EARLY: Final = 4
MOST_PER_SIDE: Final = 4
MOST_AUTOPSIES: Final = 64
AUTOPSY_AGAIN_NS: Final = 10_000_000_000
WAITERS_PER_NODE: Final = 2
MOST_REMEMBERED: Final = 4096
MOST_IN_QUESTION: Final = 512
"""With more, the first would be due again before the last is looked at."""


class LookRequest(NamedTuple):
    """One rank to take a snapshot of, with the stacks of its children `pids`."""

    host: str
    key: int
    pids: tuple[int, ...]
    stacks: bool


class LookRequests:
    """Remembers when each rank was last looked at."""

    def __init__(self) -> None:
        self._asked: dict[int, int] = {}
        self._opened: dict[int, int] = {}

    def wanted(
        self,
        ranks: Mapping[int, Rank],
        order: Iterable[int],
        findings: Iterable[Finding],
        now_ns: int,
    ) -> tuple[LookRequest, ...]:
        """At most `MOST` requests in `order`, none too soon after the last one for the rank."""
        settled = {
            rank
            for finding in findings
            if finding.confidence == "confirmed" and finding.progress != "unknown"
            for rank in finding.culprits
        }
        found: list[LookRequest] = []
        for rank in order:
            view = ranks.get(rank)
            if view is None or view.exit_info is not None or view.state == "unreachable":
                continue
            again = SETTLED_AGAIN_NS if rank in settled else AGAIN_NS
            # Without ages it is from a file.
            if not view.evidence.has_ages or not _is_due(self._asked, rank, again, now_ns):
                continue
            found.append(LookRequest(view.host, view.key, children_in_question(view), stacks=True))
            if len(found) == MOST:
                break
        if len(self._asked) > MOST_REMEMBERED:
            self._asked = {r: at for r, at in self._asked.items() if now_ns - at < AGAIN_NS}
        return tuple(found)

    def autopsies(
        self, ranks: Mapping[int, Rank], dead: Iterable[int], now_ns: int
    ) -> tuple[LookRequest, ...]:
        """Requests the last ops of dead ranks, which their rings still hold; no stacks."""
        due = (rank for rank in dead if _is_due(self._opened, rank, AUTOPSY_AGAIN_NS, now_ns))
        views = (ranks[rank] for rank in islice(due, MOST_AUTOPSIES))
        return tuple(LookRequest(view.host, view.key, (), stacks=False) for view in views)


def _is_due(asked: dict[int, int], rank: int, again_ns: int, now_ns: int) -> bool:
    """Whether the last request is `again_ns` old; if so, notes a new one."""
    if rank in asked and now_ns - asked[rank] < again_ns:
        return False
    asked[rank] = now_ns
    return True


def early_suspects(context: Context) -> list[WaitNode]:
    """A few nodes that will soon be overdue, so that there is a snapshot to compare with."""
    overdue, graph = set(context.overdue), context.graph
    early = [node for node in graph.nodes_where("early", context.now_ns) if node not in overdue]
    early = oldest_first(early)[:MOST_EARLY]
    for node in early:
        graph.look_into(node, context.now_ns)
    return early


def ranks_needing_stacks(frame: ObservedFrame) -> list[int]:
    """Ranks of groups whose members stopped at different ops of unknown completion.

    These are ops on devices, and ops that a program polls: only stacks show which ranks wait.
    """
    found: list[int] = []
    for group in frame.groups:
        last = group.last
        if last is None or not (group.exact and group.late) or (last.tracked and last.done_ns):
            continue
        patience = patience_ns(last, None) if last.tracked else EARLY_NS
        if group.idle_s(frame.now_ns) * 1e9 > patience:
            late = set(group.late)
            ahead = [rank for rank in group.members if rank not in late]
            found += [*group.late[:MOST_PER_SIDE], *ahead[:MOST_PER_SIDE]]
    return found


def ranks_at_rest(ranks: Mapping[int, Rank], partial: Iterable[int], now_ns: int) -> list[int]:
    """Ranks that issue nothing and have nothing pending, but whose ops are not all known.

    Only their stacks show whether they are in a message or a rendezvous. Two stacks are taken soon,
    and then one now and then.
    """
    found: list[int] = []
    for rank in sorted(partial):
        view = ranks[rank]
        if view.pending:
            continue
        active_ns = last_activity_ns(view)
        if now_ns - view.clock_ns - active_ns < EARLY_NS:
            continue
        new, old = view.snapshot, view.prior_snapshot
        compared = new is not None and old is not None and old.at_ns >= active_ns
        if not compared or new is None or now_ns - view.clock_ns - new.at_ns > AT_REST_AGAIN_NS:
            found.append(rank)
    return found


def in_question(
    findings: Iterable[Finding], nodes: Sequence[WaitNode], others: Iterable[int]
) -> list[int]:
    """Ranks worth a look, the most useful first: culprits, absent ranks, waiting ranks."""
    every = chain(
        (rank for one in findings for rank in _that_differ(one)),
        (rank for one in findings for rank in one.culprits[:SUSPECTS_PER_NODE]),
        (
            rank
            for p in nodes
            for rank in [*p.free, *p.blocked_at, *p.unobserved][:SUSPECTS_PER_NODE]
        ),
        (wait.rank for node in nodes for wait in node.waits[:WAITERS_PER_NODE]),
        # No member is absent: only a snapshot of each one shows dead links.
        (w.rank for p in nodes if not (p.free or p.blocked_at or p.ended) for w in p.waits),
        others,
    )
    order: dict[int, None] = {}
    for rank in every:
        order[rank] = None
        if len(order) == MOST_IN_QUESTION:
            break
    return list(order)


def _that_differ(finding: Finding) -> tuple[int, ...]:
    """Ranks whose ops differ: their stacks show which lines led there, their rings earlier ops."""
    detail = finding.detail
    if not isinstance(detail, OpsDiffer):
        return ()
    compared = detail.mismatch.first_pair if finding.confidence != "confirmed" else ()
    blocked = detail.mismatch.parties[:2] if detail.blocking else ()
    return (*compared, *(party.ranks[0] for party in blocked))

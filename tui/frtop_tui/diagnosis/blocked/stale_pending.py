"""Ops that a rank still reports as pending although they are over.

Python code of the rank records that an op is complete. While a thread holds the GIL no such
code runs, and the last op stays pending in the ring. The stack of the op's thread shows that it
is over, or the other members, who have completed it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice
from typing import Final

from frtop_probe import wire
from frtop_tui.diagnosis.blocked.blocked_op import Wait
from frtop_tui.diagnosis.blocked.group_frontier import GroupFrontier
from frtop_tui.diagnosis.evidence.rank_activity import gil_holder, working_location
from frtop_tui.diagnosis.evidence.stack_location import OP_WAITS, locate
from frtop_tui.diagnosis.evidence.working_thread import kernel_view
from frtop_tui.job.groups import members_of
from frtop_tui.job.model import Rank

_VAGUE: Final = frozenset({"lock", "unknown"})
"""Locations that a wait in C++ may look like."""
_OUTDATED_STATES: Final = frozenset({"silent", "stopped", "dead", "done", "unreachable"})
"""States of ranks whose pending ops may be over."""


def is_wait_doubtful(view: Rank, wait: Wait) -> bool:
    """Whether the wait may be over: the rank is silent, or its stack is elsewhere."""
    if view.state == "silent":
        return True
    if view.snapshot is None or not wait.op.sync or wait.background:
        return False
    location = working_location(view)
    return location is not None and location.sure and location.kind not in OP_WAITS | _VAGUE


class CompletionByMembers:
    """Which ops the members of groups have completed, as of one frame; answers are cached."""

    def __init__(
        self, ranks: Mapping[int, Rank], frontier_of: Callable[[wire.Group], GroupFrontier]
    ) -> None:
        self._ranks = ranks
        self._frontier_of = frontier_of
        self._known: dict[tuple[GroupFrontier, int], tuple[bool, list[int]]] = {}

    def others_completed(self, rank: int, group: wire.Group, number: int) -> bool:
        """Whether a member has completed an op, and no other than `rank` still has it pending."""
        frontier = self._frontier_of(group)
        known = self._known.get((frontier, number))
        if known is None:
            known = self._known[frontier, number] = self._ask(frontier, number)
        any_completed, pending = known
        return any_completed and all(other == rank for other in pending)

    def _ask(self, frontier: GroupFrontier, number: int) -> tuple[bool, list[int]]:
        """Whether any member has completed an op, and at most two members that have not."""
        not_completed = frontier.not_completed(number, self._ranks)
        pending = (rank for rank in not_completed if _is_up_to_date(self._ranks[rank]))
        any_completed = any(
            rank not in not_completed and _is_up_to_date(self._ranks[rank])
            for rank in frontier.issued
        )
        return any_completed, [*islice(pending, 2)]


def still_pending(view: Rank, completion: CompletionByMembers) -> tuple[wire.Op, ...]:
    """The pending ops of a rank in doubt that are not known to be over."""
    return tuple(op for op in view.pending if not _is_over(view, op, completion))


def is_message_over(wait: Wait, ranks: Mapping[int, Rank], peer_wait: Wait | None) -> bool:
    """Whether a silent rank's send or receive is over: its peer waits for it in a collective.

    If it were not, the rank that holds the GIL would still be the one to look at.
    """
    if not wait.op.p2p or ranks[wait.rank].state != "silent":
        return False
    if peer_wait is None or peer_wait.op.p2p or peer_wait.group is None:
        return False
    return wait.rank in members_of(peer_wait.group.ranks)


def _is_over(view: Rank, op: wire.Op, completion: CompletionByMembers) -> bool:
    if op.pseudo or not op.tracked:
        return False
    if _holds_gil_elsewhere(view, op):
        return True
    group = view.groups.get(op.group)
    if group is None or op.p2p or not group.exact:
        return False
    return completion.others_completed(view.rank, group, op.number)


def _is_up_to_date(view: Rank) -> bool:
    return view.state not in _OUTDATED_STATES and view.evidence.has_ages


def _holds_gil_elsewhere(view: Rank, op: wire.Op) -> bool:
    """Whether the op's thread holds the GIL, which a wait releases, at another place."""
    if view.state != "silent" or view.stacks_taken_ns < op.issued_ns or not op.sync:
        return False
    holder = gil_holder(view)
    if holder is None or holder.ident != op.thread:
        return False
    return locate(holder, kernel_view(view, holder)).kind not in OP_WAITS

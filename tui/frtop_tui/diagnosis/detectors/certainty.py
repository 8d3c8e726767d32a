"""What no amount of looking settles: where a finding stays a suspicion, or undecided."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from frtop_tui.diagnosis.evidence.rank_activity import main_thread_location
from frtop_tui.diagnosis.graph.wait_node import WaitNode
from frtop_tui.diagnosis.wording.absence import stacks_step
from frtop_tui.job.model import Rank
from frtop_tui.job.naming import folded, listed

CERTAIN: Final = frozenset({"stopped", "gil"})
"""Causes that updates alone tell: no look has to confirm them, and they are no slowness."""
LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})


def reach(views: Mapping[int, Rank]) -> str:
    """What to do about ranks that cannot be seen."""
    if any(view.dumped for view in views.values()):
        return "fetch the dumps of these ranks, too; where there are none, their output"
    silent = list(dict.fromkeys(v.host for v in views.values() if v.state == "unheard"))
    hosts = listed(silent) if silent else "the hosts that are missing"
    return f"reach {hosts}: up, and is the agent there running?"


def members_known(node: WaitNode) -> bool:
    """Whether it is known who has to come to `point`.

    Everybody of the world to `init_process_group`. To `new_group` and the like those whom
    the call told of; where it did not, mostly everybody, too.
    """
    known = node.kind == "init_process_group" or node.callers is not None
    return not node.op.pseudo or known


def belong_to_heard_hosts(views: Mapping[int, Rank], never: Sequence[int]) -> bool:
    """Whether `never` would run on hosts that are heard, going by the ranks around them.

    Others may run where nobody has looked: then that they were never heard of means little.
    """
    if all(view.identity.job.master_addr in LOOPBACK for view in views.values()):
        return True
    spans: dict[str, tuple[int, int]] = {}
    for rank, view in views.items():
        first, last = spans.get(view.host, (rank, rank))
        begin = rank - max(0, view.identity.local_rank)
        spans[view.host] = (min(first, begin), max(last, rank))
    return all(any(first <= rank <= last for first, last in spans.values()) for rank in never)


def doubt(views: Mapping[int, Rank], node: WaitNode) -> tuple[str, str] | None:
    """Why a wait that all have entered may not be stuck, and what to do about it."""
    members = [view for rank in node.members if (view := views.get(rank)) is not None]
    unheard = [view.rank for view in members if view.state == "unheard"]
    waiter = views[node.waits[0].rank]
    if node.op.p2p:
        text = "its peer has issued the other half, or which peer is not known"
        return text, stacks_step(waiter)
    if node.undated:
        text = "all have issued it; that it does not finish, a single dump does not tell"
        return text, "dump again some seconds later: what is unfinished in both does not move"
    if unheard:
        return f"{folded(unheard)} had entered it, too, and cannot be seen any more", reach(views)
    if not node.op.tracked and not any(_inside(views[rank]) for rank in node.waiting):
        text = "all have issued it; whether devices still work on it, or on what came"
        return f"{text} after it, cannot be seen", stacks_step(waiter, native=True)
    return None


def _inside(view: Rank) -> bool:
    """Whether a rank's stack is in the call of a collective itself."""
    place = main_thread_location(view)
    return place is not None and place.kind == "collective"

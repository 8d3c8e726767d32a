"""Rendezvous that fails although every rank came: at the store, or after it.

`init_process_group` first connects to the store at the job's address and waits there for all
ranks; then the ranks connect to each other. Only stacks tell which of the two does not finish.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from frtop_probe import wire
from frtop_tui.diagnosis.causes import Cause
from frtop_tui.diagnosis.evidence.rank_activity import working_location
from frtop_tui.diagnosis.evidence.working_thread import working_stack
from frtop_tui.diagnosis.finding import Detail
from frtop_tui.diagnosis.graph.wait_node import WaitNode
from frtop_tui.job.model import Rank

LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_RENDEZVOUS: Final = "torch/distributed/rendezvous.py"


class Rendezvous(Detail, frozen=True):
    """Where the ranks of a first `init_process_group` are.

    Attributes:
        at: "store" while some connect to it, "peers" when none does any more, else "unknown".
        ranks: those whose stacks show it; of "unknown" the first that waits.
        several_hosts: whether ranks run on more than one host.
    """

    at: Literal["store", "peers", "unknown"]
    job: wire.Job
    ranks: tuple[int, ...]
    several_hosts: bool

    @property
    def cause(self) -> Cause:
        return "transport" if self.at == "peers" else "rendezvous"


def rendezvous(views: Mapping[int, Rank], node: WaitNode) -> Rendezvous | None:
    """Where the rendezvous is; None if `node` is none."""
    if not node.op.pseudo or node.kind != "init_process_group":
        return None
    waiting = [views[rank] for rank in sorted(node.waiting)]
    job = waiting[0].identity.job
    several = len({view.host for view in views.values()}) > 1
    seen = [view for view in waiting if working_location(view) is not None]
    connecting = tuple(view.rank for view in seen if is_connecting(view))
    if connecting:
        return Rendezvous("store", job, connecting, several)
    if seen:
        return Rendezvous("peers", job, tuple(view.rank for view in seen), several)
    return Rendezvous("unknown", job, (waiting[0].rank,), several)


def is_connecting(view: Rank) -> bool:
    """Whether the working thread connects to the store, which waits for all ranks."""
    stack = working_stack(view)
    return stack is not None and any(
        frame.file.endswith(_RENDEZVOUS) or frame.function == "_create_c10d_store"
        for frame in stack.frames
    )

"""Ops on devices that all have issued: hosts still inside of the call, devices that lag."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from frtop_probe import wire
from frtop_tui.diagnosis.blocked.group_frontier import last_issued_number, local_group_id
from frtop_tui.diagnosis.graph.wait_node import WaitNode
from frtop_tui.job.model import Rank


class DeviceCalls(Struct, frozen=True):
    """Where the members of a node are, which all have issued its op.

    Attributes:
        inside: hosts whose call has not returned.
        returned: hosts whose call has.
        first: whether it is the group's first op, which makes its communicator.
    """

    inside: tuple[int, ...]
    returned: tuple[int, ...]
    first: bool = False

    @property
    def odd(self) -> tuple[int, ...]:
        """The few that are elsewhere than most; none if there is no majority."""
        few, most = sorted((self.inside, self.returned), key=len)
        return few if 2 * len(few) < len(few) + len(most) else ()


def device_calls(views: Mapping[int, Rank], node: WaitNode) -> DeviceCalls | None:
    """Who is inside the call of `node`; None for an op that runs on no device."""
    if not node.op.on_device or node.op.p2p:
        return None
    inside = tuple(wait.rank for wait in node.waits if not wait.op.enqueued)
    returned = tuple(rank for rank in node.members if rank not in inside and rank in views)
    return DeviceCalls(inside, returned, node.number == 1)


_TOGETHER: Final = ("all_reduce", "all_gather", "reduce_scatter", "barrier", "all_to_all")
"""Ops that no device completes before all members have entered."""
_ON_HOSTS: Final = ("gloo", "mpi", "fake")
"""Backends without devices: their ops run in threads, and are noted as done later."""


class DeviceLag(Struct, frozen=True):
    """Devices of `ranks` are still at op `number`, or before it where they have not `begun` it.

    Those of the others have completed it, or at least begun.
    """

    ranks: tuple[int, ...]
    number: int
    begun: bool = True


def device_lag(views: Mapping[int, Rank], node: WaitNode) -> DeviceLag | None:
    """Members whose devices are at an op that those of the others have passed.

    Only where evidence has completion, all have issued the op of `node`, and its backend is known
    to have devices; else nobody.
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
    """Whether its recorder sees how far the device is, and no op waits in its call."""
    progress = view.group_progress.get(group) if group is not None else None
    if progress is None or not progress.watched:
        return False
    return all(op.enqueued for op in view.pending if op.group == group and op.on_device)


def _are_few(last: Mapping[int, wire.Op], members: int) -> bool:
    """Whether these lag, and it is not the others that are ahead."""
    together = all(
        op.signature is not None and op.signature.kind.startswith(_TOGETHER) for op in last.values()
    )
    return 2 * len(last) < members or (together and 2 * len(last) == members)


def _tells_starts(view: Rank) -> bool:
    """Whether its recorder notes starts: it does not if completed ops have none."""
    ops = view.snapshot.ops if view.snapshot is not None else ()
    return any(op.started_ns for op in ops) or not any(op.done_ns for op in ops)

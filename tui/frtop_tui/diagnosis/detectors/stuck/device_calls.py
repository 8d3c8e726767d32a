"""Hosts that are inside the call of an op on a device, which should return at once."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

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

"""Groups in which not all members count alike: a recorder was started after the group was made.

Their numbers are never compared. But when every member sits in an op of the group, and these
ops cannot be the same one, they disagree whatever the numbers are.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from frtop_tui.diagnosis.detectors.mismatch.compare import Mismatch, compare
from frtop_tui.diagnosis.graph.wait_node import WaitNode
from frtop_tui.job.groups import identifier
from frtop_tui.job.naming import folded


@dataclass(frozen=True, slots=True)
class UnalignedMismatch:
    """Ranks that wait in ops that do not fit; `ranks` count from a later op on."""

    found: Mismatch
    ranks: tuple[int, ...]

    @property
    def missing(self) -> str:
        """For the verdict: what is not known because of it."""
        return (
            f"which op of the group {folded(self.ranks)} is at: the recorder there was started"
            " after the group was made"
        )


def parted(nodes: Iterable[WaitNode], node: WaitNode) -> UnalignedMismatch | None:
    """A disagreement among all members of the group of `point`, where some cannot be compared."""
    group = node.group
    if group is None or node.op.pseudo or node.op.p2p:
        return None
    here = identifier(group)
    waits = {
        wait.rank: wait
        for other in nodes
        if other.group is not None and identifier(other.group) == here
        for wait in other.waits
        if not (wait.background or wait.op.pseudo or wait.op.p2p)
    }
    late = [rank for rank, wait in waits.items() if wait.group and not wait.group.exact]
    if not late or waits.keys() != set(node.members):
        return None
    found = compare(group, 0, {rank: wait.op for rank, wait in waits.items()})
    if found is None:
        return None
    return UnalignedMismatch(
        Mismatch(found.group, 0, found.field, found.parties, node.since_ns),
        tuple(sorted(late)),
    )

"""Groups whose members do not count alike: a recorder started after the group was made.

Their sequence numbers are never compared. But when every member sits in an op of the group, and
these ops cannot be the same one, they differ whatever their numbers are.
"""

from __future__ import annotations

from msgspec.structs import replace

from frtop_tui.diagnosis.detectors.context import Context
from frtop_tui.diagnosis.detectors.mismatch.compare import compare
from frtop_tui.diagnosis.detectors.mismatch.live_mismatch import mismatch_finding
from frtop_tui.diagnosis.finding import Finding
from frtop_tui.diagnosis.graph.wait_node import WaitNode
from frtop_tui.job.groups import identifier


def find(context: Context, node: WaitNode) -> Finding | None:
    """A mismatch among all members of the group of `node`, if some of them count otherwise."""
    group = node.group
    if group is None or node.op.pseudo or node.op.p2p:
        return None
    key = identifier(group)
    waits = {
        wait.rank: wait
        for other in context.graph.all.values()
        if other.group is not None and identifier(other.group) == key
        for wait in other.waits
        if not (wait.background or wait.op.pseudo or wait.op.p2p)
    }
    late = [rank for rank, wait in waits.items() if wait.group and not wait.group.exact]
    if not late or waits.keys() != set(node.members):
        return None
    found = compare(group, 0, {rank: wait.op for rank, wait in waits.items()})
    if found is None:
        return None
    found = replace(found, number=0, since_ns=node.since_ns)
    made = mismatch_finding(context.frame, found, set(node.members), unaligned=tuple(sorted(late)))
    return replace(made, key=("unaligned", node.id, made.parties))

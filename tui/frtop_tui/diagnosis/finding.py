"""What cases find: facts without sentences. `words` of each case turn them into verdicts."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TypedDict

from msgspec import Struct
from msgspec.structs import replace

from frtop_probe import wire
from frtop_tui.diagnosis.causes import Cause
from frtop_tui.diagnosis.graph.wait_node import WaitNode
from frtop_tui.diagnosis.model import Confidence, OpName, Progress, VerdictKind
from frtop_tui.job.naming import GroupKey


class Detail(Struct, frozen=True):
    """What one kind of finding knows beyond `Finding`, for its words and its confirmation."""


class Finding(Struct, frozen=True):
    """One root cause, or one wait without a known cause."""

    kind: VerdictKind  # of the verdict it becomes
    detail: Detail  # what only this kind of finding knows
    key: Hashable  # equal for the same finding in later frames, for confirmation
    culprits: tuple[int, ...] = ()  # ranks to blame, as few as can be justified
    victims: frozenset[int] = frozenset()  # ranks that wait for them, or ended because of them
    parties: tuple[tuple[int, ...], ...] = ()  # sides that disagree, where nobody is to blame
    cause: Cause = "unknown"  # why the culprits are not there
    progress: Progress = "none"  # whether the culprits make progress
    confidence: Confidence = "suspect"
    group: GroupKey | None = None
    op: OpName | None = None
    nodes: tuple[WaitNode, ...] = ()  # waits that it explains
    since_ns: int = 0  # operator's clock; 0 if not known
    left_s: float | None = None  # until torch's own timeout ends the first of `nodes`, if known
    issuer: wire.Issuer | None = None  # the op's module and phase, if recorded

    @property
    def without_nodes(self) -> Finding:
        """The facts that outlive the frame: nodes change with the graph."""
        return replace(self, detail=Detail(), nodes=())

    @property
    def hung(self) -> bool:
        """Whether it says that the culprits will not arrive."""
        return self.confidence == "confirmed" and self.progress == "none"


def group_key(group: wire.Group | None) -> GroupKey | None:
    """The key of a group as one rank knows it."""
    return GroupKey(group.name, group.ranks, group.epoch) if group is not None else None


class NodeFacts(TypedDict):
    """What a finding says about the waits that it explains."""

    group: GroupKey | None
    op: OpName
    nodes: tuple[WaitNode, ...]
    since_ns: int
    left_s: float | None
    issuer: wire.Issuer | None


def facts_of(nodes: Sequence[WaitNode], now_ns: int) -> NodeFacts:
    """The facts of a finding that explains the waits at `nodes`, by the first of them.

    Groups have timeouts of their own: whichever op torch ends first ends the job.
    """
    first = nodes[0]
    soonest = min(nodes, key=lambda node: node.deadlines.timeout)
    return NodeFacts(
        group=group_key(first.group),
        op=op_of(first),
        nodes=tuple(nodes),
        since_ns=first.known_since_ns,
        left_s=soonest.left_s(now_ns),
        issuer=first.op.issuer,
    )


def op_of(node: WaitNode) -> OpName:
    """The op that ranks are blocked in at `node`."""
    return OpName(node.kind, node.number)

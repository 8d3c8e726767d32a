"""What every case reads: one frame, its index and graph, and what earlier frames showed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from frtop_tui.diagnosis.blocked.rank_index import RankIndex
from frtop_tui.diagnosis.cases.dead.roots import Deaths
from frtop_tui.diagnosis.cases.mismatch.compare import Mismatch
from frtop_tui.diagnosis.cases.not_entered.false_alarms import FalseAlarms
from frtop_tui.diagnosis.finding import Finding
from frtop_tui.diagnosis.graph.wait_graph import WaitGraph
from frtop_tui.diagnosis.graph.wait_node import WaitNode
from frtop_tui.diagnosis.thresholds import SUSPECTS_PER_NODE
from frtop_tui.job.model import ObservedFrame, Rank


@dataclass(slots=True)
class Context:
    """One frame. Cases run in the order of causes and add to `explained`."""

    frame: ObservedFrame
    index: RankIndex
    graph: WaitGraph
    deaths: Deaths
    mismatches: Sequence[Mismatch]
    released: Mapping[int, int]  # by rank, when it came out of a long wait
    overdue: Sequence[WaitNode] = field(init=False)
    false_alarms: FalseAlarms = field(default_factory=FalseAlarms)
    explained: set[WaitNode] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.overdue = self.graph.overdue(self.now_ns)

    @property
    def now_ns(self) -> int:
        return self.frame.now_ns

    @property
    def ranks(self) -> Mapping[int, Rank]:
        """The ranks without pending ops that are over."""
        return self.index.corrected

    @property
    def corrected_frame(self) -> ObservedFrame:
        """The frame without pending ops that are over."""
        same = self.ranks is self.frame.ranks
        return self.frame if same else replace(self.frame, ranks=self.ranks)

    @property
    def has_ages(self) -> bool:
        """Whether any rank's present state is known; else waits have no age, and none is asked."""
        return any(rank.evidence.has_ages for rank in self.ranks.values())

    @property
    def has_numbers(self) -> bool:
        """Whether any rank's ops are counted; else calls are known by their lines alone."""
        return any(rank.evidence.has_numbers for rank in self.ranks.values())

    def culprits(self, finding: Finding) -> list[Rank]:
        """The first few of its culprits: more would show the same."""
        return [self.ranks[rank] for rank in finding.culprits[:SUSPECTS_PER_NODE]]

    def awaiting(self, ranks: Iterable[int]) -> list[WaitNode]:
        """Nodes at which others wait for one of `ranks`, however briefly."""
        return self.graph.at(ranks, self.now_ns)

    def accept(self, findings: Iterable[Finding]) -> None:
        """Marks the nodes of `findings` as explained."""
        for finding in findings:
            self.explained.update(finding.nodes)

    @property
    def has_moved(self) -> bool:
        """Whether an op was seen to be issued. If not every op is known, one look shows none."""
        if not self.index.partial:
            return True
        return any(last.dated for rank in self.ranks.values() for last in rank.last_ops)

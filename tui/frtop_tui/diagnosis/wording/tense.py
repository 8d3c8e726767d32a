"""The tense of a headline."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum

from frtop_tui.diagnosis.graph.wait_node import RankSet, rank_set
from frtop_tui.job.naming import shortened


class Tense(Enum):
    """Whether a headline speaks of now, or of what was so before a job ended."""

    PRESENT = 0
    PAST = 1

    def of(self, present: str, past: str) -> str:
        return present if self is Tense.PRESENT else past

    def has(self, ranks: Sequence[int]) -> str:
        return self.of("has" if len(ranks) == 1 else "have", "had")

    def waits(self, ranks: Iterable[int]) -> str:
        """`ranks 0-1,3 wait`."""
        return self.set_waits(rank_set(ranks))

    def set_waits(self, waiting: RankSet) -> str:
        if not waiting.ranks:
            return self.of("nobody waits yet", "nobody waited yet")
        if len(waiting.ranks) == 1:
            return f"rank {waiting.folded} {self.of('waits', 'waited')}"
        return f"ranks {shortened(waiting.folded)} {self.of('wait', 'waited')}"

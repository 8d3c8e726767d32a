"""What a person has asked to sample of a rank's numbers, and how much of it is left."""

from __future__ import annotations

import time
from dataclasses import dataclass


@dataclass(slots=True)
class WatchPlan:
    """What was asked for, and how much of it is left."""

    every: int
    ops: int
    until_ns: int
    inputs: bool = True
    groups: frozenset[int] = frozenset()
    """Ids of groups; none: all."""
    steps: int = 0
    """Optimizers' steps of which parameters and gradients are sampled."""
    asked: tuple[int, int, int] = (0, 0, 0)
    """Ops, seconds and steps as they were asked for."""
    from_step: int = 0
    begin_by_ns: int = 0
    """When it begins at the latest, whatever the step."""
    by: str = ""
    """The operator who asked."""

    def has_begun(self, step: int) -> bool:
        """Whether what happens in this step is sampled: all ranks begin in the same one."""
        return step >= self.from_step or time.monotonic_ns() >= self.begin_by_ns

"""Samples the scale of torch's `GradScaler`, and whether it found an Inf, at each of its updates.

A scaler updates in every iteration, even after an Inf, when it skips the optimizer's step.
"""

from __future__ import annotations

import itertools
import time
import weakref
from collections.abc import Callable
from typing import Any

from frtop_probe.features.tensor_checks.in_rank.stats import Sample
from frtop_probe.recorder.marks.steps import StepCounter

Take = Callable[[Sample, list[Any]], None]


class LossScales:
    """The scalers of one process, in the order of their first updates: the same on all ranks."""

    def __init__(self, steps: StepCounter, take: Take) -> None:
        self._steps = steps
        self._take = take
        self._places: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._count = itertools.count()
        self._last: dict[int, tuple[int, int]] = {}
        """By scaler: the step of its last update, and the number of updates in that step."""
        self._begun: int | None = None
        self._open: int | None = None
        """The scaler that is being updated."""

    @property
    def in_step(self) -> bool:
        """Whether an optimizer has stepped since the last update."""
        return self._begun is not None

    def step_begins(self, step: int) -> None:
        """An optimizer steps: the next update belongs to this step, even if the step has ended."""
        self._begun = step

    def update_begins(self, scaler: Any) -> None:
        """Samples whether an optimizer's gradients had an Inf, which the update forgets."""
        step = self._steps.current if self._begun is None else self._begun
        self._begun = None
        place = self._places.get(scaler)
        if place is None:
            place = self._places[scaler] = next(self._count)
        self._open = place
        last, count = self._last.get(place, (-1, 0))
        # Skipped steps have no number of their own.
        self._last[place] = step, count + 1 if step == last else 1
        states = getattr(scaler, "_per_optimizer_states", {}).values()
        found = [one for state in states for one in state["found_inf_per_device"].values()]
        self._take(self._sample(place, "found_inf"), found)

    def update_ended(self, scaler: Any) -> None:
        """Samples the scale after an update."""
        place, self._open = self._open, None
        scale = getattr(scaler, "_scale", None)
        if place is not None and scale is not None:
            self._take(self._sample(place, "loss_scale"), [scale])

    def _sample(self, place: int, role: str) -> Sample:
        step, number = self._last[place]
        now = time.monotonic_ns()
        return Sample(0, number, "loss scale", role, f"scaler {place}", step, now, 0)

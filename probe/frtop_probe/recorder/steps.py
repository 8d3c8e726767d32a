"""Counts training steps without a change to the program: by the steps of its optimizers."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from typing import Any

from frtop_probe.recorder.writer import RingWriter
from frtop_probe.ring.layout import Event, StatusCell


class StepCounter:
    """Counts steps per optimizer; the highest count is the training step.

    The user's own `step()` counts like another optimizer.
    """

    def __init__(self, writer: RingWriter) -> None:
        self._writer = writer
        self._counts: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._own = 0
        self._last = 0

    def optimizer_stepped(self, optimizer: Any) -> None:
        count = self._counts.get(optimizer, 0) + 1
        self._counts[optimizer] = count
        self._reach(count)

    def stepped(self, number: int | None = None) -> None:
        """Counts the user's `step()`: the next step, or the step with this number."""
        self._own = self._own + 1 if number is None else number
        self._reach(self._own)

    def _reach(self, step: int) -> None:
        if step <= self._last:
            return
        self._last = step
        self._writer.cells[StatusCell.STEP] = step
        self._writer.cells[StatusCell.STEP_NS] = time.monotonic_ns()
        self._writer.write_event(Event.STEP, step)


def watch_optimizers(
    torch: Any, module: Any, stepped: Callable[[Any], None]
) -> Callable[..., None] | None:
    """Registers a post-step hook for all optimizers of `torch.optim.optimizer`.

    Returns:
        The registered function, or None where torch has no such registration.
    """
    register = getattr(module, "register_optimizer_step_post_hook", None)
    if register is None:
        return None

    compiling = getattr(getattr(torch, "compiler", None), "is_compiling", bool)

    def after_step(optimizer: Any, args: Any, kwargs: Any) -> None:  # noqa: ARG001
        # Dynamo treats this as constant and true, and so traces nothing of ours.
        if not compiling():
            stepped(optimizer)

    register(after_step)
    return after_step

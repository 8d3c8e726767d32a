"""Training steps without a change to the program: how often its busiest optimizer stepped."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from typing import Any

from frtop_probe.recorder.writer import Writer
from frtop_probe.ring.layout import Cell, Event


class Steps:
    """Counts per optimizer, and the user's own `step()` as if it were another one."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._counts: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._own = 0
        self._last = 0

    def optimizer_stepped(self, optimizer: Any) -> None:
        count = self._counts.get(optimizer, 0) + 1
        self._counts[optimizer] = count
        self._reach(count)

    def stepped(self, number: int | None = None) -> None:
        """The user's `step()`: the next one, or the one with this number."""
        self._own = self._own + 1 if number is None else number
        self._reach(self._own)

    def _reach(self, step: int) -> None:
        if step <= self._last:
            return
        self._last = step
        self._writer.cells[Cell.STEP] = step
        self._writer.cells[Cell.STEP_NS] = time.monotonic_ns()
        self._writer.mark(Event.STEP, step)


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
        # Dynamo takes this for constant and true, and so traces nothing of ours.
        if not compiling():
            stepped(optimizer)

    register(after_step)
    return after_step

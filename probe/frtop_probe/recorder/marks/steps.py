"""Counts training steps by optimizer steps, so the program needs no change.

Also records when each optimizer's step began and ended on the host.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, Final

from frtop_probe.recorder.own_ring import OwnRing
from frtop_probe.ring.layout import MarkKind, StatusCell

MOST_OPTIMIZERS: Final = 16
"""Most optimizers recorded. A program with more may have one per parameter, each running inside
the backward: they would fill the ring with marks."""
TOO_MANY: Final = (
    f"optimizer times are not recorded: more than {MOST_OPTIMIZERS} optimizers take turns"
)


class StepCounter:
    """Counts steps per optimizer; the highest count is the training step.

    The user's own `step()` counts like another optimizer.
    """

    def __init__(self, ring: OwnRing, test_ops: Callable[[], None]) -> None:
        """`test_ops` finds out which pending ops have completed."""
        self._ring = ring
        self._test_ops = test_ops
        self._marks = ring.marks
        self._counts: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._own = 0
        self._last = 0
        self._last_mark = 0
        self._begun: dict[int, list[tuple[int, int]]] = {}
        """By thread: `id` and mark of the optimizer whose step it runs. An optimizer called within
        another one's step is part of that step and has no mark (0)."""
        self._round: weakref.WeakSet[Any] = weakref.WeakSet()
        """Optimizers that have begun a step in this round. Weak, because a new optimizer may get
        the `id` of a dead one."""
        self._times_optimizers = True
        self.reached: Callable[[int], None] | None = None
        """Called at the end of each step, by the thread that ended it."""
        self.thread = 0
        """The ident of that thread; 0 before the first step."""

    @property
    def current(self) -> int:
        """Number of the step that the rank is in."""
        return self._last + 1

    @property
    def last(self) -> int:
        """Number of the step that ended last; 0 before the first end."""
        return self._last

    def in_optimizer(self, thread: int) -> bool:
        """Returns whether a thread runs the step of a recorded optimizer."""
        return bool(self._begun.get(thread))

    def index_of(self, optimizer: Any) -> int:
        """Returns its place among the optimizers that have stepped, the same on all ranks."""
        counts = self._counts
        return list(counts).index(optimizer) if optimizer in counts else len(counts)

    def optimizer_begins(self, optimizer: Any) -> None:
        """Begins the mark of an optimizer's step. The ops that it depends on have completed."""
        if not self._times_optimizers:
            return
        self._test_ops()
        begun = self._begun.setdefault(threading.get_ident(), [])
        if any(known == id(optimizer) for known, _ in begun):  # it raised
            self._marks.abandon(begun[0][1])
            begun.clear()
        if begun:
            begun.append((id(optimizer), 0))
            return
        if optimizer in self._round:
            self._round.clear()
        self._round.add(optimizer)
        if len(self._round) > MOST_OPTIMIZERS:
            self._times_optimizers = False
            self._marks.unwatch(MarkKind.OPTIMIZER)
            self._ring.write_note(TOO_MANY)
            return
        begun.append((id(optimizer), self._marks.begin(MarkKind.OPTIMIZER, self.current)))

    def optimizer_stepped(self, optimizer: Any) -> None:
        """Ends the mark and counts the step."""
        thread = threading.get_ident()
        begun = self._begun.get(thread, ())
        for place, (known, mark) in enumerate(begun):
            if known == id(optimizer):
                if mark:
                    self._marks.end(mark)
                    del self._begun[thread]
                else:
                    del self._begun[thread][place:]
                break
        count = self._counts.get(optimizer, 0) + 1
        self._counts[optimizer] = count
        self._reach(count)

    def stepped(self, number: int | None = None, samples: int = 0) -> None:
        """Counts the user's `step()`: the next step, or the step with this number.

        Args:
            number: number of the step.
            samples: samples that this rank processed since the last call. In a loop with an
                optimizer the step has already ended, so they are added to the last step.
        """
        self._own = self._own + 1 if number is None else number
        self._reach(self._own)
        if samples > 0 and self._last_mark:
            self._marks.add_samples(self._last_mark, samples)

    def _reach(self, step: int) -> None:
        if step <= self._last:
            return
        self._last = step
        self._ring.cells[StatusCell.STEP] = step
        self._ring.cells[StatusCell.STEP_NS] = time.monotonic_ns()
        self._last_mark = self._marks.instant(MarkKind.STEP, step)
        self.thread = threading.get_ident()
        if self.reached is not None:
            self.reached(step)


def watch_optimizers(
    torch: Any, module: Any, begins: Callable[[Any], Any], stepped: Callable[[Any], Any]
) -> list[Callable[..., None]]:
    """Registers hooks before and after a step for all optimizers of `torch.optim.optimizer`.

    Returns:
        The registered functions, if torch supports them.
    """
    compiling = getattr(getattr(torch, "compiler", None), "is_compiling", bool)

    def before_step(optimizer: Any, args: Any, kwargs: Any) -> None:  # noqa: ARG001
        # Dynamo treats this as constantly true, and so traces none of our code.
        if not compiling():
            begins(optimizer)

    def after_step(optimizer: Any, args: Any, kwargs: Any) -> None:  # noqa: ARG001
        if not compiling():
            stepped(optimizer)

    registered: list[Callable[..., None]] = []
    for name, hook in (("pre", before_step), ("post", after_step)):
        register = getattr(module, f"register_optimizer_step_{name}_hook", None)
        if register is not None:
            register(hook)
            registered.append(hook)
    return registered

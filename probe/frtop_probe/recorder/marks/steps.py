"""Counts training steps by optimizer steps, so the program needs no change.

Also records when each optimizer's step began and ended on the host.

A program with one optimizer has it counted by the native kernels, if there are any: two hooks in
Python take 40 to 50 µs of a step, whose caches are cold. What needs more takes the counting back.
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

# As integers: to look up an enum's member in a step's cold caches takes as long as a mark.
_STEP: Final = int(MarkKind.STEP)
_OPTIMIZER: Final = int(MarkKind.OPTIMIZER)
_STEP_CELL: Final = int(StatusCell.STEP)
_STEP_NS_CELL: Final = int(StatusCell.STEP_NS)
_THREAD, _MARK, _LAST_MARK, _LAST_THREAD, _WORDS = 1, 2, 4, 5, 6
"""Places in `StepCounter.only`, the words of `Only` in kernel.cpp."""


class _Optimizer:
    """One that has begun a step. Weak, because a new one may get the `id` of a dead one."""

    __slots__ = "of", "steps", "turn"

    def __init__(self, of: Any) -> None:
        self.of = weakref.ref(of)
        self.steps = self.turn = 0


class StepCounter:
    """Counts steps per optimizer; the highest count is the training step.

    The user's own `step()` counts like another optimizer.
    """

    def __init__(self, ring: OwnRing, test_ops: Callable[[], None]) -> None:
        """`test_ops` finds out which pending ops have completed."""
        self._ring = ring
        self._test_ops = test_ops
        self._marks = ring.marks
        self._optimizers: dict[int, _Optimizer] = {}  # by `id`
        self._own = 0
        self._begun: dict[int, list[tuple[_Optimizer, int]]] = {}
        """By thread: mark of the optimizer whose step it runs. An optimizer called within
        another one's step is part of that step and has no mark (0)."""
        self._turn, self._in_turn = 1, 0
        """A turn of the optimizers, and how many have begun a step in it."""
        self._times_optimizers = True
        self._reached: Callable[[int], None] | None = None
        self._only: Any = [0] * _WORDS
        self._give: Callable[[Any, int], object] | None = None
        self._take: Callable[[_Optimizer, dict[int, Any]], object]
        self.native_begins: Callable[[Any], bool] = _not_native
        self.native_ended: Callable[[Any], bool] = _not_native
        """Both do what `optimizer_begins` and `optimizer_stepped` do, if it is the only optimizer;
        else they return False."""

    def use(
        self,
        only: Any,
        begins: Callable[[Any], bool],
        ended: Callable[[Any], bool],
        give: Callable[[Any, int], object],
        take: Callable[[Any, dict[int, Any]], object],
    ) -> None:
        """Leaves the only optimizer to the native kernels, whose `step_methods` these are."""
        self._only, self._give, self._take = only, give, take
        self.native_begins, self.native_ended = begins, ended

    @property
    def current(self) -> int:
        """Number of the step that the rank is in."""
        return self.last + 1

    @property
    def last(self) -> int:
        """Number of the step that ended last; 0 before the first end."""
        return int(self._ring.cells[_STEP_CELL])

    @property
    def thread(self) -> int:
        """The ident of the thread that ended that step; 0 before the first end."""
        return int(self._only[_LAST_THREAD])

    @property
    def reached(self) -> Callable[[int], None] | None:
        """Called at the end of each step, by the thread that ended it."""
        return self._reached

    @reached.setter
    def reached(self, function: Callable[[int], None] | None) -> None:
        self._reached = function
        self._take_back()

    def in_optimizer(self, thread: int) -> bool:
        """Returns whether a thread runs the step of a recorded optimizer."""
        return bool(self._begun.get(thread)) or self._only[_THREAD] == thread

    def index_of(self, optimizer: Any) -> int:
        """Returns its place among the optimizers that have stepped, the same on all ranks."""
        stepped = [one.of() for one in list(self._optimizers.values()) if one.steps]
        living = [one for one in stepped if one is not None]
        return next((n for n, one in enumerate(living) if one is optimizer), len(living))

    def optimizer_begins(self, optimizer: Any) -> None:
        """Begins the mark of an optimizer's step. The ops that it depends on have completed."""
        if not self._times_optimizers:
            return
        self._take_back()
        self._test_ops()
        one, thread = self._known(optimizer), threading.get_ident()
        begun = self._begun.get(thread)
        if begun:
            if all(known is not one for known, _ in begun):
                begun.append((one, 0))
                return
            self._marks.abandon(begun[0][1])  # it raised
        if one.turn == self._turn:  # its second step ends a turn
            self._turn, self._in_turn = self._turn + 1, 0
        one.turn = self._turn
        self._in_turn += 1
        if self._in_turn > MOST_OPTIMIZERS and self._too_many():
            self._times_optimizers = False
            self._begun.pop(thread, None)
            self._marks.unwatch(MarkKind.OPTIMIZER)
            self._ring.write_note(TOO_MANY)
            return
        self._begun[thread] = [(one, self._marks.begin(_OPTIMIZER, self.current))]

    def optimizer_stepped(self, optimizer: Any) -> None:
        """Ends the mark and counts the step."""
        self._take_back()
        one, thread = self._known(optimizer), threading.get_ident()
        begun = self._begun.get(thread, ())
        for place, (known, mark) in enumerate(begun):
            if known is one:
                if mark:
                    self._marks.end(mark)
                    del self._begun[thread]
                else:
                    del self._begun[thread][place:]
                break
        one.steps += 1
        self._reach(one.steps)
        is_only = len(self._optimizers) == 1 and not self._begun and self._times_optimizers
        if self._give is not None and is_only and self._reached is None:
            self._give(one.of, one.steps)

    def stepped(self, number: int | None = None, samples: int = 0) -> None:
        """Counts the user's `step()`: the next step, or the step with this number.

        Args:
            number: number of the step.
            samples: samples that this rank processed since the last call. In a loop with an
                optimizer the step has already ended, so they are added to the last step.
        """
        self._own = self._own + 1 if number is None else number
        self._reach(self._own)
        if samples > 0 and (mark := self._only[_LAST_MARK]):
            self._marks.add_samples(mark, samples)

    def _take_back(self) -> None:
        if self._give is not None:
            for one in list(self._optimizers.values())[:1]:
                self._take(one, self._begun)

    def _known(self, optimizer: Any) -> _Optimizer:
        known = self._optimizers.get(id(optimizer))
        if known is None or known.of() is not optimizer:
            for key, one in list(self._optimizers.items()):
                if one.of() is None:
                    self._optimizers.pop(key, None)
            known = self._optimizers[id(optimizer)] = _Optimizer(optimizer)
        return known

    def _too_many(self) -> bool:
        """Whether too many that live take turns."""
        turns = [one.turn for one in list(self._optimizers.values()) if one.of() is not None]
        self._in_turn = turns.count(self._turn)
        return self._in_turn > MOST_OPTIMIZERS

    def _reach(self, step: int) -> None:
        if step <= self.last:
            return
        self._ring.cells[_STEP_CELL] = step
        self._ring.cells[_STEP_NS_CELL] = time.monotonic_ns()
        self._only[_LAST_MARK] = self._marks.instant(_STEP, step)
        self._only[_LAST_THREAD] = threading.get_ident()
        if self._reached is not None:
            self._reached(step)


def _not_native(_: Any) -> bool:
    return False


def watch_optimizers(
    torch: Any,
    module: Any,
    steps: StepCounter,
    begins: Callable[[Any], Any],
    stepped: Callable[[Any], Any],
) -> list[Callable[..., None]]:
    """Registers hooks before and after a step for all optimizers of `torch.optim.optimizer`.

    Args:
        torch: the module.
        module: the one with the functions that register.
        steps: its native functions are called first.
        begins: called before a step that they do not count.
        stepped: called after it.

    Returns:
        The registered functions, if torch supports them.
    """
    compiling = getattr(getattr(torch, "compiler", None), "is_dynamo_compiling", bool)
    native_begins, native_ended = steps.native_begins, steps.native_ended

    def before_step(optimizer: Any, args: Any, kwargs: Any) -> None:  # noqa: ARG001
        # Dynamo treats this as constantly true, and so traces none of our code.
        if not compiling() and not native_begins(optimizer):
            begins(optimizer)

    def after_step(optimizer: Any, args: Any, kwargs: Any) -> None:  # noqa: ARG001
        if not compiling() and not native_ended(optimizer):
            stepped(optimizer)

    registered: list[Callable[..., None]] = []
    for name, hook in (("pre", before_step), ("post", after_step)):
        register = getattr(module, f"register_optimizer_step_{name}_hook", None)
        if register is not None:
            register(hook)
            registered.append(hook)
    return registered

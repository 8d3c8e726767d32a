"""Records when forwards and backwards begin and end on the host, if `FRTOP_PHASES` is 1.

* A forward is the outermost call of a module while gradients are computed, of any module:
  `torch.nn.Module.__call__` is wrapped. Calls inside it only pass a test.
* A backward is the outermost call of torch's engine: the one Python function that starts it is
  wrapped.

No module gets a hook: global hooks would run at every module, `torch.compile` warns about them,
and Dynamo compiles modules with their own hooks differently. The wrappers are no part of a graph:
Dynamo skips their frames, and where it traces through one, that is a constant test.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Callable
from typing import Any, Final

from frtop_probe.recorder.marks.steps import StepCounter
from frtop_probe.recorder.ops.kernel import hide_from_dynamo
from frtop_probe.recorder.own_ring import OwnRing
from frtop_probe.ring.layout import MarkKind

SETTING: Final = "FRTOP_PHASES"
MOST_FORWARDS: Final = 256
"""Most forwards between two backwards or steps. A program with more calls each layer by itself, or
does not train: its marks would fill the ring."""
TOO_MANY: Final = (
    f"forwards are not recorded: more than {MOST_FORWARDS} calls of outermost modules without a"
    " backward or a step"
)
_KNOWN_TO_DYNAMO: Final = "torch._dynamo.utils", "torch._dynamo.variables.nn_module"
Hook = Callable[[Any], Any]
Guard = Callable[[Callable[..., Any]], Callable[..., Any]]


def wanted() -> bool:
    """Returns whether the job was started with phases."""
    return os.environ.get(SETTING) == "1"


class PhaseRecorder:
    """Records phases of all threads. A phase inside another one belongs to the outer one."""

    def __init__(self, ring: OwnRing, steps: StepCounter, test_ops: Callable[[], None]) -> None:
        """`test_ops` finds out which pending ops have completed."""
        self._test_ops = test_ops
        self._ring = ring
        self._marks = ring.marks
        self._steps = steps
        self.on = True
        """Whether new phases are recorded; a phase that has begun is ended anyway."""
        self._open: dict[int, tuple[int, int]] = {}
        """By thread: the mark of its phase, and the step."""
        self._backward = 0
        """Mark of the running backward: inside it torch may start others, in other threads."""
        self._first_step = 0
        """The step from which on forwards are recorded."""
        self._forwards = self._forwards_of = 0
        """Forwards since the last backward or step, and the step that they belong to."""

    def switch(self, *, on: bool) -> None:
        """Starts or stops recording, from the next phase on.

        In a job that trains, forwards begin with the next step: the program may be in a module
        whose call we did not see.
        """
        self.on = on
        self._forwards = 0
        step = self._steps.current
        self._first_step = step + 1 if step > 1 else 0
        if on:
            self._marks.watch(MarkKind.BACKWARD)
        else:
            self._marks.unwatch(MarkKind.BACKWARD)
            self._marks.unwatch(MarkKind.FORWARD)

    def forward_begins(self) -> int:
        """Begins the forward of an outermost module; returns the argument for `forward_ends`."""
        step = self._steps.current
        # On a device, the engine's threads call modules for activation checkpointing.
        if not self.on or self._backward or step < self._first_step:
            return 0
        if self._forwards_of != step:
            self._forwards_of, self._forwards = step, 0
        self._forwards += 1
        if self._forwards == 1:
            self._marks.watch(MarkKind.FORWARD)  # only once one is seen
        elif self._forwards > MOST_FORWARDS:
            self._first_step = sys.maxsize
            self._marks.unwatch(MarkKind.FORWARD)
            self._ring.write_note(TOO_MANY)
            return 0
        return self._begin(MarkKind.FORWARD, step)

    def forward_ends(self, mark: int | None) -> None:
        """Ends the forward that this mark began."""
        thread = threading.get_ident()
        # A step, and the backward after it, may have ended inside the call.
        if mark and self._open.get(thread, (0, 0))[0] == mark:
            self._marks.end(mark)
            del self._open[thread]

    def backward_begins(self) -> int:
        """Begins a backward; returns the argument for `backward_ends`."""
        if not self.on:
            return 0
        step = self._steps.current
        known = self._open.get(threading.get_ident())
        if self._backward or (known is not None and known[1] == step):
            return 0
        self._forwards = 0
        mark = self._backward = self._begin(MarkKind.BACKWARD, step)
        return mark

    def backward_ends(self, mark: int | None) -> None:
        """Ends a backward. The ops that torch waited for in it have completed."""
        if mark:
            self._marks.end(mark)
            self._test_ops()
            self._open.pop(threading.get_ident(), None)
            self._backward = 0

    def _begin(self, kind: MarkKind, step: int) -> int:
        thread = threading.get_ident()
        known = self._open.get(thread)
        if known is not None:  # the step ended inside it
            self._marks.abandon(known[0])
        mark = self._marks.begin(kind, step)
        self._open[thread] = mark, step
        return mark


def install(torch: Any, recorder: Callable[[], PhaseRecorder], guard: Guard) -> bool:
    """Wraps the functions that begin and end phases; returns whether backwards are recorded.

    Args:
        torch: the package.
        recorder: returns this process's recorder: a forked child has another one.
        guard: wraps functions that record.
    """
    forward_begins = guard(lambda: recorder().forward_begins())
    forward_ends = guard(lambda mark: recorder().forward_ends(mark))
    begins = guard(lambda: recorder().backward_begins())
    ends = guard(lambda mark: recorder().backward_ends(mark))
    # All functions that `guard` makes share one code object, and call only our code.
    hide_from_dynamo(torch, begins)
    enabled = torch.is_grad_enabled

    def outermost(
        original: Callable[..., Any], compiling: Callable[[], bool]
    ) -> Callable[..., Any]:
        inside: set[int] = set()
        ident = threading.get_ident

        @functools.wraps(original)
        def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
            if compiling() or ident() in inside or not enabled():
                return original(self, *args, **kwargs)
            thread, mark = ident(), None
            try:
                inside.add(thread)
                mark = forward_begins()
                return original(self, *args, **kwargs)
            finally:
                inside.discard(thread)  # first: a signal handler may raise in the other
                forward_ends(mark)

        return __call__

    wrap_calls(torch, outermost)
    return wrap_backward(torch, begins, ends)


def wrap_calls(torch: Any, make: Callable[[Callable[..., Any], Any], Callable[..., Any]]) -> bool:
    """Wraps calls of modules; returns whether this torch allows it.

    Args:
        torch: the package.
        make: takes what a call runs now, and a function that is true only where Dynamo traces;
            returns what a call runs from now on. What that calls of ours is hidden from Dynamo.
    """
    kind = torch.nn.Module
    original = kind.__dict__.get("__call__")
    compiling = getattr(torch.compiler, "is_dynamo_compiling", None)
    if original is None or compiling is None:
        return False
    wrapper = make(original, compiling)
    hide_from_dynamo(torch, wrapper, callees=False)  # it calls the program's code
    for name in _KNOWN_TO_DYNAMO:
        # Dynamo has a fast path for the `__call__` that it knows.
        module = sys.modules.get(name)
        if getattr(module, "unpatched_nn_module_call", None) is original:
            module.unpatched_nn_module_call = wrapper  # type: ignore[union-attr]
    kind.__call__ = wrapper
    return True


def wrap_labels(torch: Any, wanted: Callable[[str], bool], begins: Hook, ends: Hook) -> bool:
    """Wraps the start and end of the labels that programs set for profilers (`record_function`).

    Dynamo knows such labels by their class and leaves them out of graphs. Returns whether this
    torch has them.

    Args:
        torch: the package.
        wanted: takes each label's text; must be cheap.
        begins: takes the label object.
        ends: likewise.
    """
    kind = getattr(torch.autograd.profiler, "record_function", None)
    before, after = (getattr(kind, "__dict__", {}).get(n) for n in ("__enter__", "__exit__"))
    if before is None or after is None:
        return False

    @functools.wraps(before)
    def __enter__(self: Any) -> Any:  # noqa: N807 - replaces the method of this name
        if wanted(getattr(self, "name", "")):
            begins(self)
        return before(self)

    @functools.wraps(after)
    def __exit__(self: Any, *error: Any) -> Any:  # noqa: N807
        try:
            return after(self, *error)
        finally:
            if wanted(getattr(self, "name", "")):
                ends(self)

    for wrapper in (__enter__, __exit__):
        hide_from_dynamo(torch, wrapper)
        setattr(kind, wrapper.__name__, wrapper)
    return True


def wrap_backward(torch: Any, begins: Callable[[], Any], ends: Callable[[Any], Any]) -> bool:
    """Wraps the function from which `backward` and `grad` start torch's engine.

    Passes the result of `begins` to `ends`. `torch.autograd.backward` itself stays unwrapped:
    Dynamo and TorchScript recognise it by identity.
    """
    autograd = torch.autograd
    graph = getattr(autograd, "graph", None)
    original = getattr(graph, "_engine_run_backward", None)
    if original is None or autograd.__dict__.get("_engine_run_backward") is not original:
        return False

    @functools.wraps(original)
    def _engine_run_backward(*args: Any, **kwargs: Any) -> Any:
        mark = begins()
        try:
            return original(*args, **kwargs)
        finally:
            ends(mark)

    hide_from_dynamo(torch, _engine_run_backward, callees=False)
    graph._engine_run_backward = _engine_run_backward  # type: ignore[union-attr]  # noqa: SLF001
    autograd._engine_run_backward = _engine_run_backward  # noqa: SLF001
    return True

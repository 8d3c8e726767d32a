"""Records when forwards and backwards begin and end on the host, if `FRTOP_PHASES` is 1.

No module gets a hook: global hooks would run at every module, `torch.compile` warns about them,
and Dynamo compiles modules with their own hooks differently. The wrapped functions are never part
of a graph:

* for a backward, the one Python function from which torch starts its engine;
* for a forward of DDP, the label that DDP sets for profilers. Dynamo knows such labels by their
  class and leaves them out of graphs; a forward compiled with its label is not recorded;
* for a forward of FSDP2, the functions around its root's: FSDP2 keeps Dynamo out of them.

The forward of a bare module is not recorded.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable
from typing import Any, Final

from frtop_probe.recorder.marks.steps import StepCounter
from frtop_probe.recorder.ops.kernel import hide_from_dynamo
from frtop_probe.recorder.own_ring import OwnRing
from frtop_probe.recorder.process.import_hook import when_imported
from frtop_probe.ring.layout import MarkKind

SETTING: Final = "FRTOP_PHASES"
DDP: Final = "DistributedDataParallel.forward"
"""The label's text."""
FSDP: Final = "torch.distributed.fsdp._fully_shard._fsdp_state"
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
        self._marks = ring.marks
        self._steps = steps
        self.on = True
        """Whether new phases are recorded; a phase that has begun is ended anyway."""
        self._open: dict[int, tuple[int, int, int]] = {}
        """By thread: `id` of what runs forward (0 for a backward), its mark, and the step."""
        self._watches_forward = False
        self._backward = 0
        """Mark of the running backward: inside it torch may start others, in other threads."""

    def switch(self, *, on: bool) -> None:
        """Starts or stops recording, from the next phase on."""
        self.on = on
        self._watches_forward = False
        if on:
            self._marks.watch(MarkKind.BACKWARD)
        else:
            self._marks.unwatch(MarkKind.BACKWARD)
            self._marks.unwatch(MarkKind.FORWARD)

    def forward_begins(self, owner: Any) -> None:
        """Begins the forward of a DDP or FSDP2 module."""
        if not self.on:
            return
        thread, step = threading.get_ident(), self._steps.current
        known = self._open.get(thread)
        if known is not None:
            if known[0] != id(owner) and known[2] == step:
                return
            self._marks.abandon(known[1])  # it raised
        if not self._watches_forward:  # a program without DDP and FSDP2 has none
            self._watches_forward = True
            self._marks.watch(MarkKind.FORWARD)
        self._open[thread] = id(owner), self._marks.begin(MarkKind.FORWARD, step), step

    def forward_ends(self, owner: Any) -> None:
        """Ends the forward that this module began."""
        thread = threading.get_ident()
        known = self._open.get(thread)
        if known is not None and known[0] == id(owner):
            self._marks.end(known[1])
            del self._open[thread]

    def root_begins(self, state: Any) -> None:
        """Begins the forward of an FSDP2 module, unless another module's forward encloses it."""
        if state._state_ctx.iter_forward_root is None:  # noqa: SLF001
            self.forward_begins(state)

    def root_ends(self, state: Any) -> None:
        """Ends the forward of the outermost FSDP2 module."""
        if state._state_ctx.iter_forward_root is state:  # noqa: SLF001
            self.forward_ends(state)

    def backward_begins(self) -> int:
        """Begins a backward; returns the argument for `backward_ends`."""
        if not self.on:
            return 0
        thread, step = threading.get_ident(), self._steps.current
        known = self._open.get(thread)
        if self._backward or (known is not None and known[2] == step):
            return 0
        if known is not None:
            self._marks.abandon(known[1])
        mark = self._backward = self._marks.begin(MarkKind.BACKWARD, step)
        self._open[thread] = 0, mark, step
        return mark

    def backward_ends(self, mark: int | None) -> None:
        """Ends a backward. The ops that torch waited for in it have completed."""
        if mark:
            self._marks.end(mark)
            self._test_ops()
            self._open.pop(threading.get_ident(), None)
            self._backward = 0


def install(
    torch: Any, recorder: Callable[[], PhaseRecorder], guard: Guard, always_guard: Guard
) -> bool:
    """Wraps the functions that begin and end phases; returns whether backwards are recorded.

    Args:
        torch: the package.
        recorder: returns this process's recorder: a forked child has another one.
        guard: wraps functions that record.
        always_guard: wraps functions that wrap.
    """

    def watch_fsdp(module: Any) -> None:
        begins = guard(lambda state: recorder().root_begins(state))
        ends = guard(lambda state: recorder().root_ends(state))
        # Not `_pre_forward` and `_post_forward`: Dynamo recognises these by identity.
        names = "_root_pre_forward", "_register_pre_backward_hook"
        _wrap_root(torch, getattr(module, "FSDPState", None), names, begins, ends)

    wrap_labels(
        torch,
        DDP.__eq__,
        guard(lambda label: recorder().forward_begins(label)),
        guard(lambda label: recorder().forward_ends(label)),
    )
    when_imported(FSDP, always_guard(watch_fsdp))
    begins = guard(lambda: recorder().backward_begins())
    ends = guard(lambda mark: recorder().backward_ends(mark))
    # All functions that `guard` makes share one code object, and call only our code.
    hide_from_dynamo(torch, begins)
    return wrap_backward(torch, begins, ends)


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


def _wrap_root(torch: Any, kind: Any, names: tuple[str, str], begins: Hook, ends: Hook) -> None:
    """Wraps two FSDP2 methods, which run before and after the forward of each of its modules."""
    before, after = (getattr(kind, "__dict__", {}).get(name) for name in names)
    if before is None or after is None:
        return

    @functools.wraps(before)
    def first(self: Any, *args: Any, **kwargs: Any) -> Any:
        begins(self)
        return before(self, *args, **kwargs)

    @functools.wraps(after)
    def second(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = after(self, *args, **kwargs)
        ends(self)
        return result

    for name, wrapper in zip(names, (first, second), strict=True):
        hide_from_dynamo(torch, wrapper, callees=False)
        setattr(kind, name, wrapper)

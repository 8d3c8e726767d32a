"""Tracks which modules run, by a wrapper around `torch.nn.Module.__call__`.

In a forward, that is a stack per thread. A backward runs only autograd nodes, but each node has
the sequence number that its thread had when it made the node. So for each thread we also keep the
numbers at which another module began to run, and find a node's module by bisection. We add nothing
to the graph and no hook to a module: hooks would change what is compiled, and the nodes of full
backward hooks forbid in-place operations.

We ignore a thread that was inside a module at that moment until this call has ended: otherwise
we would take parts of a model for models.

Dynamo skips the frame of the wrapper; where it traces through, the wrapper is one constant test.
Inside a graph there are no module calls at all.
"""

from __future__ import annotations

import functools
import inspect
import sys
import threading
import weakref
from bisect import bisect_right
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, Final

from frtop_probe.features.modules.in_rank.module_names import is_backward
from frtop_probe.recorder.guard import raised_by_signal_handler
from frtop_probe.recorder.marks.phases import wrap_calls
from frtop_probe.recorder.ops.kernel import hide_from_dynamo

MAX_BOUNDARIES: Final = 65_536
"""Most entries per thread; beyond that, the older half goes. A training step of a thousand modules
has at most 2,000: each call has a start and an end."""
MAX_ROOTS: Final = 64


class ThreadCalls:
    """The modules of one thread.

    `stack` has the running modules, the innermost last; the first `floor` of them called the
    current backward. `owners[i]` (a weak reference; None: no module) made the nodes from autograd
    sequence number `starts[i]` on.
    """

    __slots__ = ("floor", "owners", "stack", "starts")

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.floor = 0
        self.starts: list[int] = [-1]
        self.owners: list[weakref.ref[Any] | None] = [None]

    def owner_of(self, number: int) -> Any | None:
        """Returns the module that made the node with this sequence number; None if unknown."""
        at = bisect_right(self.starts, number) - 1
        owner = self.owners[at] if at >= 0 else None
        return owner() if owner is not None else None

    def enter(self, module: Any, number: int, roots: dict[int, weakref.ref[Any]]) -> None:
        """Notes that a module begins to run, at an autograd sequence number."""
        stack, starts = self.stack, self.starts
        me = weakref.ref(module)
        if not stack and not is_backward(module):
            add_root(roots, module)
        stack.append(module)
        last = starts[-1]
        if number == last:
            self.owners[-1] = me
            return
        if number < last:  # the numbers of this thread have restarted
            starts[:], self.owners[:] = [-1], [None]
        elif len(starts) > MAX_BOUNDARIES:
            half = len(starts) // 2
            del starts[:half], self.owners[:half]
        starts.append(number)
        self.owners.append(me)

    def leave(self, depth: int, number: int) -> None:
        """Notes that a module has returned or raised; `depth` modules run now."""
        stack = self.stack
        del stack[depth:]
        owner = weakref.ref(stack[-1]) if stack else None
        if number == self.starts[-1]:
            self.owners[-1] = owner
        else:
            self.starts.append(number)
            self.owners.append(owner)


def add_root(roots: dict[int, weakref.ref[Any]], module: Any) -> None:
    """Adds a module that no other module has called."""
    if len(roots) >= MAX_ROOTS and id(module) not in roots:
        roots.clear()
    roots[id(module)] = weakref.ref(module)


class ModuleCalls:
    """The modules of all threads, and the backwards that run."""

    def __init__(self) -> None:
        self.local = threading.local()
        self.roots: dict[int, weakref.ref[Any]] = {}
        """Modules that no other module called, by `id`."""
        self.on = False
        self.call_code: CodeType | None = None
        """The code that each call of a module runs."""
        self.label: Callable[[Any], Any] | None = None
        """While a profile runs: begins a label for a module, and returns it."""
        self._backwards: list[ThreadCalls] = []
        """By thread with a running backward."""

    def begin_anew(self) -> None:
        """Forgets the running modules, because we have missed calls for a while."""
        self.local = threading.local()
        self._backwards = []

    def of_thread(self) -> ThreadCalls | None:
        """Returns the modules of the calling thread; None inside a call that we did not see."""
        local = self.local
        try:
            calls: ThreadCalls = local.calls
        except AttributeError:
            if self._in_call():
                return None
            calls = local.calls = ThreadCalls()
        return calls

    def _in_call(self) -> bool:
        frame: FrameType | None = sys._getframe(1)  # noqa: SLF001
        while frame is not None:
            if frame.f_code is self.call_code:
                return True
            frame = frame.f_back
        return False

    def backward_begins(self) -> tuple[ThreadCalls, int] | None:
        """Separates the modules that run inside a backward from those that called it."""
        calls = self.of_thread()
        if calls is None:
            return None
        before = calls, calls.floor
        calls.floor = len(calls.stack)
        self._backwards.append(calls)
        return before

    def backward_ends(self, before: tuple[ThreadCalls, int] | None) -> None:
        """Undoes `backward_begins`."""
        if before is not None:
            calls, floor = before
            calls.floor = floor
            if calls in self._backwards:
                self._backwards.remove(calls)

    def makers(self, own: ThreadCalls) -> ThreadCalls | None:
        """Returns the modules of the thread whose forward made the nodes that `own` runs, if known.

        On a device, a thread of the engine runs the nodes, not the thread that called backward.
        """
        began = self._backwards[:]
        if any(one is own for one in began):
            return own
        only = began[0] if began else None
        return only if all(one is only for one in began) else None


class Current:
    """What the wrappers use in this process; a forked child has its own."""

    __slots__ = ("call_code", "calls", "enabled", "fail", "issuers")

    def __init__(self) -> None:
        self.calls: ModuleCalls | None = None
        self.issuers: Any = None
        """The `Issuers` that `calls` belong to."""
        self.call_code: CodeType | None = None
        """The code that each call of a module runs."""
        self.enabled: list[int] = [0]
        self.fail: Callable[[BaseException], Any] = lambda _: None


def watch_calls(torch: Any, current: Current) -> bool:
    """Wraps calls of modules; returns whether this torch allows it."""
    number = getattr(torch._C._autograd, "_get_sequence_nr", None)  # noqa: SLF001
    if number is None:
        return False
    for function in (ModuleCalls.of_thread, ThreadCalls.enter, ThreadCalls.leave, add_root):
        hide_from_dynamo(torch, function)

    def make(original: Callable[..., Any], compiling: Callable[[], bool]) -> Callable[..., Any]:
        # Torch's own: a call that runs now may have begun before any wrapper.
        current.call_code = getattr(inspect.unwrap(original), "__code__", None)
        return _wrapper(original, current, number, compiling)

    return wrap_calls(torch, make)


def _wrapper(
    original: Callable[..., Any],
    current: Current,
    number: Callable[[], int],
    compiling: Callable[[], bool],
) -> Callable[..., Any]:
    @functools.wraps(original)
    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
        if (
            compiling()
            or (known := current.calls) is None
            or not (known.on and current.enabled[0])
            or (calls := known.of_thread()) is None
        ):
            return original(self, *args, **kwargs)
        depth = len(calls.stack)
        label = None
        try:
            try:
                calls.enter(self, number(), known.roots)
                if known.label is not None:
                    label = known.label(self)
            except Exception as error:
                if raised_by_signal_handler(error):
                    raise
                current.fail(error)
            return original(self, *args, **kwargs)
        finally:
            calls.leave(depth, number())
            if label is not None:
                label.__exit__(None, None, None)

    return __call__

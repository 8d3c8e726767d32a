"""Wraps `Work.wait` to know exactly when a wait begins and when its op ends.

Torch's own functions call it for every synchronous op, and programs for asynchronous ones. Waits in
C++ do not pass here: those of DDP's reducer, and those of functional collectives (`wait_tensor`),
which only the native kernels see.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import FunctionType
from typing import Any, Final

from frtop_probe.recorder.feature import OpWatch
from frtop_probe.recorder.guard import leave_out, raised_by_signal_handler
from frtop_probe.recorder.ops.pending import PendingOps

EXACT_NS: Final = 1_000_000
"""Precision of an end that counts as exact."""


class WaitHook:
    """The wrappers of `Work.wait`. They stay until the process ends, or `remove`.

    A `wait` in Python is not wrapped: it calls its base class's, or waits for no op.
    """

    def __init__(  # noqa: PLR0917 - what a wait needs
        self,
        work: Any,
        pending: PendingOps,
        watch: OpWatch,
        enabled: list[int],
        fail: Callable[[BaseException], None],
        native: Callable[[Any, Any, Any], Any] | None = None,
    ) -> None:
        """Installs the wrappers on `work`, torch's class of handles, and its subclasses.

        The recorder is on while `enabled[0]` is not 0; `fail` takes our own exceptions.
        """
        self.wrapped: list[tuple[Any, Any, Any]] = []
        """Class, its own `wait`, our `wait`."""
        for kind in _classes(work):
            own = kind.__dict__.get("wait")
            if own is not None and not isinstance(own, FunctionType):
                ours = _wrapper(kind.wait, pending, watch, enabled, fail)
                if native is not None:
                    ours = native(kind, kind.wait, ours)
                kind.wait = ours
                self.wrapped.append((kind, own, ours))

    def remove(self) -> None:
        """Restores the originals, unless other code has wrapped them too."""
        for kind, own, ours in self.wrapped:
            if kind.__dict__.get("wait") is ours:
                kind.wait = own


def _is_over(work: Any) -> bool:
    """Whether an op is complete; false if the program's handle raises."""
    try:
        return bool(work.is_completed())
    except Exception:  # noqa: BLE001 - the program raises it in its own call
        return False


def _classes(kind: Any) -> list[Any]:
    """Returns a class and all its subclasses; some C++ classes have their own `wait`."""
    return [kind, *(each for derived in kind.__subclasses__() for each in _classes(derived))]


def _wrapper(  # noqa: C901, PLR0915 - as in `hook`
    original: Callable[..., Any],
    pending: PendingOps,
    watch: OpWatch,
    enabled: list[int],
    fail: Callable[[BaseException], None],
) -> Callable[..., Any]:
    find, find_silent = pending.handles.get, pending.silent_handles.get
    device_handles, unfinished, ended_watched = (
        pending.device_handles, watch.unfinished, watch.ended,
    )  # fmt: skip
    clock = time.monotonic_ns

    # pybind11 checks whether the Python class of a handle overrides `wait`, and recognises a call
    # from the override itself by this name and by `self`. With another name it would call the
    # wrapper again and again.
    def wait(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: C901
        try:
            if not enabled[0]:
                return original(self, *args, **kwargs)
            key = id(self)
            if unfinished and (watched := unfinished.pop(key, None)) is not None:
                late = not watched.sync and _is_over(self)
                result = wait(self, *args, **kwargs)
                ended_watched(watched, "late" if late else "wait")
                return result
            entry = find(key) or find_silent(key)
            if entry is None:
                if device_handles:
                    return on_device(self, args, kwargs)
                return original(self, *args, **kwargs)
            begun, silent, before = clock(), False, False
            try:
                pending.wait_began(entry[1], begun)
                silent = find_silent(key) is not None
                before = not silent and self.is_completed()
            except Exception as error:
                if raised_by_signal_handler(error):
                    raise
                fail(error)
            failed = True
            try:
                result = original(self, *args, **kwargs)
                failed = False
            finally:
                try:
                    now = clock()
                    # It reports nothing, but a wait without duration waited for nothing, unless the
                    # call itself waits: then it is over now, however long it took to begin.
                    if silent and not entry[5]:
                        before = now - begun < EXACT_NS
                    late = before and now - entry[2] > EXACT_NS
                    pending.wait_ended(entry, self, begun if late else now, failed, late)
                except Exception as error:
                    if raised_by_signal_handler(error):
                        raise
                    fail(error)
            return result  # noqa: TRY300 - the whole body is guarded
        except BaseException as error:
            leave_out(error)
            raise

    def on_device(work: Any, args: Any, kwargs: Any) -> Any:
        try:
            sequence = 0
            try:
                held = device_handles.get(threading.get_ident())
                if held is not None and held[0] is work:
                    sequence = held[1]
                    del device_handles[threading.get_ident()], held
                    pending.device_wait_began(sequence, clock())
            except Exception as error:
                if raised_by_signal_handler(error):
                    raise
                fail(error)
            try:
                return original(work, *args, **kwargs)
            finally:
                if sequence:
                    try:
                        pending.device_wait_ended(sequence, clock())
                    except Exception as error:
                        if raised_by_signal_handler(error):
                            raise
                        fail(error)
        except BaseException as error:
            leave_out(error)
            raise

    wait.__doc__ = getattr(original, "__doc__", None)
    return wait

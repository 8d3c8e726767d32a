"""Wraps `Work.wait` to know exactly when a wait begins and when its op ends.

Torch's own functions call it for every synchronous op, and programs for asynchronous ones. Waits in
C++ (DDP's reducer, `wait_tensor` of functional collectives) do not pass here.
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
from frtop_probe.recorder.ops.usual_waits import MAX_STORED
from frtop_probe.ring import layout
from frtop_probe.ring.layout import Flag

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
    handles, silent_handles = pending.handles, pending.silent_handles
    device_handles, is_open = pending.device_handles, pending.open
    find, forget, close = handles.get, handles.pop, is_open.pop
    ended, set_wait = pending.wait_ended, pending.set_wait
    overflow, measured = pending.overflow.places, pending.usual_waits.measured
    forget_silent = pending.forget_silent
    words, shape, newest = pending.ring.words, pending.ring.shape, MAX_STORED - 1
    first, width = shape.slots_offset // 8, layout.SLOT_SIZE // 8
    longer_from = pending.ring.longer_from
    slots, more = shape.slots, shape.more
    wait_word, done_word = layout.SLOT_WAIT // 8, layout.SLOT_DONE // 8
    thread_word, flags_byte = layout.SLOT_THREAD // 8, layout.SLOT_FLAGS
    data, elsewhere, thread_ident = pending.ring.map, int(Flag.ELSEWHERE), threading.get_ident
    clock, identity = time.monotonic_ns, id
    unfinished, ended_watched = watch.unfinished, watch.ended

    # pybind11 checks whether the Python class of a handle overrides `wait`, and recognises a call
    # from the override itself by this name and by `self`. With another name it would call the
    # wrapper again and again.
    def wait(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: C901, PLR0912, PLR0915
        try:
            if not enabled[0]:
                return original(self, *args, **kwargs)
            key = identity(self)
            if unfinished and (watched := unfinished.pop(key, None)) is not None:
                late = not watched.sync and _is_over(self)
                result = wait(self, *args, **kwargs)
                ended_watched(watched, "late" if late else "wait")
                return result
            entry = find(key)
            if entry is None:
                entry = silent_handles.get(key)
                if entry is None:
                    if device_handles:
                        return on_device(self, args, kwargs)
                    return original(self, *args, **kwargs)
            begun, silent, before = clock(), False, False
            try:
                sequence = entry[1]
                place = sequence % slots
                if sequence >= longer_from[0]:
                    place = slots + sequence % more
                at = first + place * width
                if words[at] == sequence and not overflow:
                    words[at + wait_word] = begun
                else:
                    set_wait(sequence, begun)
                if words[at] == sequence and words[at + thread_word] != thread_ident():
                    data[at * 8 + flags_byte] |= elsewhere
                silent = entry[0] is None or key in silent_handles
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
                    if silent:  # it reports nothing, but a wait without duration waited for nothing
                        before = now - begun < EXACT_NS
                    late = before and now - entry[2] > EXACT_NS
                    if failed or late or overflow or sequence not in is_open:
                        ended(entry, self, begun if late else now, failed, late)
                    else:  # `finish` without the steps that usual ops do not need
                        if words[at] == sequence:
                            words[at + done_word] = now
                        measured[sequence & newest] = entry[3], now - entry[2], True
                        close(sequence, None)
                        if silent:
                            silent_handles.pop(key, None)
                            forget_silent(sequence)
                        else:
                            forget(key, None)
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

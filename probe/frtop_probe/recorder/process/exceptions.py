"""Records the uncaught exception that ends a rank.

The recorder chains to the interpreter's previous hooks. If the program later replaces them
without chaining, the recorder finds the exception at exit in `sys.last_exc`.
"""

from __future__ import annotations

import linecache
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Final

from frtop_probe.recorder.guard import PACKAGE_FOLDER
from frtop_probe.recorder.own_ring import OwnRing
from frtop_probe.ring.layout import Side, StatusCell

MAX_TEXT: Final = 4000
MAX_LINE: Final = 200
INNERMOST: Final = 48
OUTERMOST: Final = 12

Guard = Callable[[Callable[..., object]], Callable[..., object]]


class ExceptionRecorder:
    """Hooks into `sys.excepthook` and `threading.excepthook` once per process."""

    def __init__(self, ring: OwnRing) -> None:
        self.ring: OwnRing | None = ring
        self._seen: BaseException | None = None
        self._count = 0

    def install(self, guarded: Guard) -> None:
        """Chains the hooks. `guarded` wraps a function so that it never raises."""
        record, record_thread = guarded(self.record), guarded(self._record_thread)
        previous, previous_thread = sys.excepthook, threading.excepthook

        def excepthook(
            kind: type[BaseException], value: BaseException, trace: TracebackType | None
        ) -> None:
            record(value, trace)
            previous(kind, value, trace)

        def threading_excepthook(args: Any) -> None:
            record_thread(args)
            previous_thread(args)

        sys.excepthook = excepthook
        threading.excepthook = threading_excepthook

    def record(
        self,
        value: BaseException,
        trace: TracebackType | None,
        thread: str = "MainThread",
        main: bool = True,
    ) -> None:
        ring = self.ring
        if ring is None or (value is self._seen and main):
            return
        now = time.monotonic_ns()
        self._count += 1
        payload = {
            "kind": type(value).__qualname__,
            "text": _text(value),
            "thread": thread,
            "main": main,
            "at_ns": now,
            "frames": _frames(trace),
        }
        ring.write_entry(Side.EXCEPTION, self._count, payload)
        if main:
            self._seen = value
            ring.cells[StatusCell.EXCEPTION_NS] = now

    def _record_thread(self, args: Any) -> None:
        if args.exc_value is None or args.exc_type is SystemExit:
            return
        name = args.thread.name if args.thread is not None else "unknown"
        self.record(args.exc_value, args.exc_traceback, name, main=False)

    def recall(self) -> None:
        """Records at exit an uncaught exception that did not reach the hooks."""
        value = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
        if self._seen is None and value is not None:
            self.record(value, value.__traceback__)


def _text(value: BaseException) -> str:
    try:
        return str(value)[:MAX_TEXT]
    except Exception:  # noqa: BLE001 - the program's __str__
        return "(its text cannot be read)"


def _is_launcher(frame: FrameType) -> bool:
    """Returns whether an outermost frame belongs to `python -m` or to `-m frtop_probe`."""
    ours = frame.f_code.co_filename.startswith(PACKAGE_FOLDER)
    return ours or frame.f_globals.get("__name__") == "runpy"


def _frames(trace: TracebackType | None) -> list[list[Any]]:
    """Returns `[function, file, line, module, source]`, innermost first, bounded."""
    steps = []
    while trace is not None:
        steps.append((trace.tb_frame, trace.tb_lineno))
        trace = trace.tb_next
    while steps and _is_launcher(steps[0][0]):
        steps.pop(0)
    steps.reverse()
    if len(steps) > INNERMOST + OUTERMOST:
        steps = steps[:INNERMOST] + steps[-OUTERMOST:]
    found = []
    for frame, line in steps:
        code = frame.f_code
        found.append(
            [
                getattr(code, "co_qualname", code.co_name),
                code.co_filename,
                line,
                str(frame.f_globals.get("__name__", "")),
                linecache.getline(code.co_filename, line).strip()[:MAX_LINE],
            ]
        )
    return found

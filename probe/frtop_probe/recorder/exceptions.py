"""The exception that ends a rank: the best evidence there is, written down as it passes.

The hooks of the interpreter are chained, whoever set them before; whoever replaces them
later without chaining is made up for at exit, from what the interpreter remembers.
"""

from __future__ import annotations

import linecache
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Final

from frtop_probe.recorder.writer import Writer
from frtop_probe.ring.layout import Cell, Side

MAX_TEXT: Final = 4000
MAX_LINE: Final = 200
INNERMOST: Final = 48
OUTERMOST: Final = 12
_OURS: Final = str(Path(__file__).parents[1]) + "/"

Shield = Callable[[Callable[..., object]], Callable[..., None]]


class Exceptions:
    """Chained into `sys.excepthook` and `threading.excepthook` once per process."""

    def __init__(self, writer: Writer) -> None:
        self.writer: Writer | None = writer
        self._seen: BaseException | None = None
        self._count = 0

    def install(self, shield: Shield) -> None:
        """Chains the hooks. `shield` makes a function that never raises."""
        record, record_thread = shield(self.record), shield(self._record_thread)
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
        writer = self.writer
        if writer is None or (value is self._seen and main):
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
        writer.enter(Side.EXCEPTION, self._count, payload)
        if main:
            self._seen = value
            writer.cells[Cell.EXCEPTION_NS] = now

    def _record_thread(self, args: Any) -> None:
        if args.exc_value is None or args.exc_type is SystemExit:
            return
        name = args.thread.name if args.thread is not None else "unknown"
        self.record(args.exc_value, args.exc_traceback, name, main=False)

    def recall(self) -> None:
        """At exit: an uncaught exception that no hook of ours got to see."""
        value = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
        if self._seen is None and value is not None:
            self.record(value, value.__traceback__)


def _text(value: BaseException) -> str:
    try:
        return str(value)[:MAX_TEXT]
    except Exception:  # noqa: BLE001 - somebody else's __str__
        return "(its text cannot be read)"


def _launches(frame: FrameType) -> bool:
    """Whether an outermost frame is `python -m` at work, or `-m frtop_probe`."""
    return frame.f_globals.get("__name__") == "runpy" or frame.f_code.co_filename.startswith(_OURS)


def _frames(trace: TracebackType | None) -> list[list[Any]]:
    """`[function, file, line, module, source]`, innermost first, bounded."""
    steps = []
    while trace is not None:
        steps.append((trace.tb_frame, trace.tb_lineno))
        trace = trace.tb_next
    while steps and _launches(steps[0][0]):
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

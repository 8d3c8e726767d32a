"""Makes calls that may never return, each in a thread; a thread that hangs is left behind.

A thread may wait in the kernel for ever, for instance for a network file system whose server is
gone. No other call of its kind begins before it returns: there is at most one thread per kind.
Calls into a process or a driver are made in a child instead: `proc/line_child.py`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

MOST: Final = 32
"""Most kinds of calls."""
PATIENCE_S: Final = 2.0
"""A call that takes longer, in seconds, counts as hanging; until then its last result holds."""


@dataclass(slots=True)
class _Call:
    done: threading.Event = field(default_factory=threading.Event)
    begun: float = 0.0
    busy: bool = False
    result: Any = None


class HangingCalls:
    """Begins calls, and returns their newest results without waiting for calls that hang."""

    def __init__(self) -> None:
        self._calls: dict[str, _Call] = {}

    def begin(self, key: str, call: Callable[[], Any]) -> None:
        """Begins a call unless the previous call with that key is still running."""
        known = self._calls.get(key)
        if known is None:
            if len(self._calls) >= MOST:
                self._forget_idle()
            if len(self._calls) >= MOST:
                return
            known = self._calls[key] = _Call()
        if known.busy:
            return
        known.busy, known.begun = True, time.monotonic()
        known.done.clear()
        threading.Thread(target=_run, args=(known, call), name=key, daemon=True).start()

    def newest(self, key: str, until: float) -> tuple[Any, float]:
        """Returns a key's last result (None before the first), and how many s its call has hung.

        Waits for the current call until `until`, by `time.monotonic()`. 0.0: no call hangs.
        """
        known = self._calls.get(key)
        if known is None:
            return None, 0.0
        known.done.wait(max(0.0, until - time.monotonic()))
        since = time.monotonic() - known.begun if known.busy else 0.0
        return known.result, since if since >= PATIENCE_S else 0.0

    def _forget_idle(self) -> None:
        """Forgets kinds not used in this round, such as folders of ended ranks."""
        self._calls = {key: call for key, call in self._calls.items() if call.busy}


def _run(call: _Call, function: Callable[[], Any]) -> None:
    try:
        call.result = function()
    except Exception as error:  # noqa: BLE001 - a thread's boundary; the note names the source
        call.result = error
    call.busy = False
    call.done.set()

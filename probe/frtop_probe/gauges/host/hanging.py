"""Calls that may never return: each runs in a thread, which is left behind if it hangs.

A thread waits in the kernel, perhaps for ever, for a network file system whose server is gone. No
other call of that kind is begun before it has returned, so there are as many threads as kinds.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

MOST: Final = 32
"""Kinds of calls. The threads of those that hang stay until they return."""
PATIENCE_S: Final = 2.0
"""A call that takes longer counts as hanging; until then the previous result is the newest."""


@dataclass(slots=True)
class _Call:
    done: threading.Event = field(default_factory=threading.Event)
    begun: float = 0.0
    busy: bool = False
    result: Any = None


class HangingCalls:
    """Begins calls, and gives their newest results without waiting for those that hang."""

    def __init__(self) -> None:
        self._calls: dict[str, _Call] = {}

    def begin(self, key: str, call: Callable[[], Any]) -> None:
        """Begins a call, unless the one before of that key has not returned."""
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
        """The last result of a key, and for how many seconds a call of it hangs, 0.0 for none.

        Args:
            key: of the call; None is the result of one that never returned.
            until: by `time.monotonic()`, how long to wait for the call under way.
        """
        known = self._calls.get(key)
        if known is None:
            return None, 0.0
        known.done.wait(max(0.0, until - time.monotonic()))
        since = time.monotonic() - known.begun if known.busy else 0.0
        return known.result, since if since >= PATIENCE_S else 0.0

    def _forget_idle(self) -> None:
        """Forgets kinds that nobody asked about in this round: folders of ranks that have ended."""
        self._calls = {key: call for key, call in self._calls.items() if call.busy}


def _run(call: _Call, function: Callable[[], Any]) -> None:
    try:
        call.result = function()
    except Exception as error:  # noqa: BLE001 - a thread's boundary; the note names the source
        call.result = error
    call.busy = False
    call.done.set()

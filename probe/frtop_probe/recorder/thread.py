"""The recorder's one thread: beats, lets go of what is complete, decodes reduce ops.

It must be gone before the interpreter is: a `Work` dropped during finalization aborts.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

BEAT_S: Final = 0.25
"""The pause between two beats. Each takes the GIL and fills the caches with other things, and
nobody who reads needs them closer together."""
JOIN_S: Final = 2.0


class Thread:
    """Calls `tick` until it is told to stop."""

    def __init__(self, tick: Callable[[], None], failed: Callable[[BaseException], None]) -> None:
        self._tick = tick
        self._failed = failed
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="frtop", daemon=True)
        self.native_id = 0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> bool:
        """Whether the thread ended within its deadline."""
        self._stop.set()
        if self._thread is not threading.current_thread():
            self._thread.join(JOIN_S)
        return not self._thread.is_alive()

    def _run(self) -> None:
        self.native_id = threading.get_native_id()
        while not self._stop.is_set():
            started = time.monotonic()
            try:
                self._tick()
            except Exception as error:  # noqa: BLE001 - the worker's boundary
                self._failed(error)
            # A slow tick (a thousand pending handles) must not become a busy loop.
            spent = time.monotonic() - started
            self._stop.wait(min(max(BEAT_S, 20 * spent), 2 * BEAT_S))

"""The recorder's one thread: beats, and between two beats answers whoever asks.

It must be gone before the interpreter is: a `Work` dropped during finalization aborts.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from typing import Final

from frtop_probe.recorder.responder import Responder

BEAT_S: Final = 0.25
"""The pause between two beats. Each takes the GIL and fills the caches with other things, and
nobody who reads needs them closer together."""
JOIN_S: Final = 2.0
_FAULTS: Final = frozenset({
    signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP,
    signal.SIGSYS, signal.SIGABRT,
})  # fmt: skip
"""What a thread does to itself: blocked, it would end the process past its handlers."""


class Thread:
    """Calls `tick` until it is told to stop; without a responder it only waits in between."""

    def __init__(
        self,
        tick: Callable[[], None],
        failed: Callable[[BaseException], None],
        responder: Responder | None = None,
    ) -> None:
        self._tick = tick
        self._failed = failed
        self._responder = responder
        self._stop = threading.Event()
        self._next = 0.0
        self._thread = threading.Thread(target=self._run, name="frtop", daemon=True)
        self.native_id = 0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> bool:
        """Whether the thread ended within its deadline. Its socket ends with it."""
        self._stop.set()
        responder = self._responder
        if responder is not None:
            responder.wake()
        if self._thread is not threading.current_thread():
            self._thread.join(JOIN_S)
        if responder is not None:
            responder.remove()
        return not self._thread.is_alive()

    def cut_off(self) -> None:
        """In a forked child, where there is no such thread: what it holds is the parent's."""
        if self._responder is not None:
            self._responder.close()

    def _run(self) -> None:
        # What the program keeps for a `sigwait` of its own would come here, and end it.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - _FAULTS)
        self.native_id = threading.get_native_id()
        try:
            while self._keep_time():
                left = self._next - time.monotonic()
                if left > 0:
                    self._wait(left)
        finally:
            if self._responder is not None:
                self._responder.close()

    def _keep_time(self) -> bool:
        """Beats if it is time; false when the thread is to end."""
        if self._stop.is_set():
            return False
        started = time.monotonic()
        if started >= self._next:
            try:
                self._tick()
            except Exception as error:  # noqa: BLE001 - the worker's boundary
                self._failed(error)
            # A slow tick (a thousand pending handles) must not become a busy loop.
            now = time.monotonic()
            self._next = now + min(max(BEAT_S, 20 * (now - started)), 2 * BEAT_S)
        return True

    def _wait(self, seconds: float) -> None:
        if self._responder is None:
            self._stop.wait(seconds)
            return
        try:
            self._responder.wait(seconds, self._keep_time)
        except Exception:  # noqa: BLE001 - likewise; no answers are better than no recorder
            responder, self._responder = self._responder, None
            responder.close()
            responder.remove()

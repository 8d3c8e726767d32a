"""The recorder's only thread: it writes the heartbeat, and serves requests in between.

It must end before the interpreter does: a `Work` dropped during finalization aborts the process.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from typing import Final

from frtop_probe.recorder.requests.responder import Responder

HEARTBEAT_S: Final = 0.25
"""Pause between two heartbeats. Each takes the GIL and evicts caches; no reader needs more."""
JOIN_S: Final = 10.0
"""Longest wait for the thread's end. It ends within milliseconds unless it is in a torch call that
does not return, or the machine is overloaded. If it were left in such a call while the
interpreter ends, it would abort the process when the call takes the GIL again: waiting is the
lesser evil."""
FAULTS: Final = frozenset({
    signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP,
    signal.SIGSYS, signal.SIGABRT,
})  # fmt: skip
"""Signals that a thread raises itself: if blocked, they kill the process without its handlers."""


class RecorderThread:
    """Calls `tick` until it is stopped; serves the responder, if any, in between."""

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

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> bool:
        """Stops the thread and removes its socket; returns whether it ended in time."""
        self._stop.set()
        responder = self._responder
        if responder is not None:
            responder.wake()
        if self._thread is not threading.current_thread():
            self._thread.join(JOIN_S)
        if responder is not None:
            responder.remove()
        return not self._thread.is_alive()

    def abandon_in_child(self) -> None:
        """Closes the parent's descriptors in a forked child, where this thread does not run."""
        if self._responder is not None:
            self._responder.close()

    def _run(self) -> None:
        # Signals that the program blocks for its own `sigwait` would arrive here and kill it.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - FAULTS)
        try:
            while self._keep_time():
                left = self._next - time.monotonic()
                if left > 0:
                    self._wait(left)
        finally:
            if self._responder is not None:
                self._responder.close()

    def _keep_time(self) -> bool:
        """Writes a heartbeat if one is due; returns False when the thread must end."""
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
            self._next = now + min(max(HEARTBEAT_S, 20 * (now - started)), 2 * HEARTBEAT_S)
        return True

    def _wait(self, seconds: float) -> None:
        if self._responder is None:
            self._stop.wait(seconds)
            return
        try:
            self._responder.wait(seconds, self._keep_time)
        except Exception:  # noqa: BLE001 - likewise; better a recorder without responses than none
            responder, self._responder = self._responder, None
            responder.close()
            responder.remove()

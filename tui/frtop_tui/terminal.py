"""Ends the program when its terminal is gone: a closed window, a lost session.

Textual 8.2 does not notice: its input thread reads end-of-file in an endless loop, its
output queue fills up and blocks the application, and neither thread lets the process end.
Our own thread watches the terminal and interrupts the application within a second. The
command line imports this module, so it must not import Textual.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

from frtop_probe.proc import daemon_thread

CHECK_INTERVAL_S: Final = 0.2
GRACE_S: Final = 0.4
"""From the request to leave to the interruption, when the terminal is gone."""
PATIENCE_S: Final = 3.0
"""The same while the terminal is there: Textual has to restore it."""
SIGNALS: Final = (signal.SIGHUP, signal.SIGTERM)


class TerminalGone(BaseException):
    """Raised in the main thread of an application that does not end by itself."""


def moves_cursor() -> bool:
    """Whether the terminal can be drawn on: on these two, Textual neither draws nor ends."""
    return os.environ.get("TERM", "").lower() not in ("dumb", "unknown")


def is_there(descriptor: int) -> bool:
    """Whether the descriptor still refers to a terminal."""
    try:
        return os.isatty(descriptor)
    except OSError:
        return False


@contextmanager
def watched(leave: Callable[[int], None]) -> Iterator[None]:
    """Ends the body when the terminal is gone, or on SIGHUP and SIGTERM.

    Args:
        leave: asks the application to end with an exit status; called in the main thread,
            by a signal handler.

    Raises:
        TerminalGone: in the body, when the application did not end soon after `leave`.
    """
    asked = 0.0
    over = threading.Event()
    main = threading.get_ident()
    terminals = [descriptor for descriptor in (0, 1, 2) if is_there(descriptor)]
    had_one = 0 in terminals

    def on_signal(number: int, _frame: FrameType | None) -> None:
        nonlocal asked
        if over.is_set():
            return
        now = time.monotonic()
        if not asked:
            asked = now
            leave(128 + number)
        elif now - asked > (PATIENCE_S if is_there(0) else GRACE_S):
            raise TerminalGone

    def watch() -> None:
        while not over.wait(CHECK_INTERVAL_S):
            if asked or (had_one and not is_there(0)):
                # A signal also interrupts a main thread that blocks on a full queue.
                signal.pthread_kill(main, signal.SIGHUP)

    before = [signal.signal(number, on_signal) for number in SIGNALS]
    watcher = daemon_thread.start(watch, "frtop terminal")
    try:
        yield
    finally:
        over.set()
        watcher.join()
        for number, handler in zip(SIGNALS, before, strict=True):
            signal.signal(number, handler)
        redirect_gone(terminals)


def restart_when_continued(suspend: Callable[[], None], redraw: Callable[[], object]) -> None:
    """Has the terminal set up anew when a SIGSTOP is over; call it in the main thread.

    At a SIGCONT, Textual 8.2 believes that it was suspended before, as it is by SIGTSTP. Otherwise
    a second thread reads keys, and the end waits for one more key and leaves the terminal raw.
    """
    stop, resume = map(signal.getsignal, (signal.SIGTSTP, signal.SIGCONT))
    if not (callable(stop) and callable(resume)):
        return  # there is no terminal
    suspended = False

    def on_stop(number: int, frame: FrameType | None) -> None:
        nonlocal suspended
        suspended = True
        stop(number, frame)

    def on_continue(number: int, frame: FrameType | None) -> None:
        nonlocal suspended
        if not suspended:
            suspend()
        suspended = False
        resume(number, frame)
        redraw()

    signal.signal(signal.SIGTSTP, on_stop)
    signal.signal(signal.SIGCONT, on_continue)


def redirect_gone(terminals: Iterable[int]) -> None:
    """Redirects descriptors of terminals that are gone to `/dev/null`.

    Otherwise output fails while the caller cleans up, and so the clean-up fails, too.
    """
    gone = [descriptor for descriptor in terminals if not is_there(descriptor)]
    if not gone:
        return
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in gone:
        os.dup2(null, descriptor)
    os.close(null)


def end(status: int) -> int:
    """Returns `status` for `sys.exit`; ends the process if a thread would keep it alive.

    Call it last, when everything is closed.
    """
    deadline = time.monotonic() + GRACE_S
    others = [t for t in threading.enumerate() if t is not threading.main_thread()]
    for thread in others:
        if not thread.daemon:
            thread.join(max(0.0, deadline - time.monotonic()))
    if not any(thread.is_alive() and not thread.daemon for thread in others):
        return status
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            continue
    os._exit(status)

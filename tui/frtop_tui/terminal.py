"""What becomes of the program when its terminal goes away: a window closed, a session lost.

Textual 8.2 does not notice: its input thread reads the end of a deleted terminal in a
circle, its output queue fills up and blocks the application, and neither thread lets the
process end. So the terminal is watched beside it, and whoever runs the application is
brought back within a second. Without Textual, as the command line imports it too.
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

LOOK_S: Final = 0.2
GRACE_S: Final = 0.4
"""From asking the application to leave to taking it out of whatever it waits in."""
PATIENCE_S: Final = 3.0
"""The same while the terminal is there, and has to be put in order."""
SIGNALS: Final = (signal.SIGHUP, signal.SIGTERM)


class TerminalGone(BaseException):
    """Takes the main thread out of an application that cannot leave by itself."""


def is_there(descriptor: int) -> bool:
    """Whether a terminal still answers behind the descriptor."""
    try:
        return os.isatty(descriptor)
    except OSError:
        return False


@contextmanager
def watched(leave: Callable[[int], None]) -> Iterator[None]:
    """Ends what is inside when the terminal is gone, or on SIGHUP and SIGTERM.

    `leave` gets the exit status and is called in the main thread, from a signal handler:
    it asks the application to end. One that has not ended soon after is interrupted by
    `TerminalGone`, which is for the caller to catch. Needs the main thread.
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
        while not over.wait(LOOK_S):
            if asked or (had_one and not is_there(0)):
                # A signal also gets the main thread out of a queue that nobody empties.
                signal.pthread_kill(main, signal.SIGHUP)

    before = [signal.signal(number, on_signal) for number in SIGNALS]
    watcher = threading.Thread(target=watch, name="frtop-terminal", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
        for number, handler in zip(SIGNALS, before, strict=True):
            signal.signal(number, handler)
        let_go(terminals)


def let_go(terminals: Iterable[int]) -> None:
    """Puts nothing in the place of terminals that are gone.

    What the caller says while it cleans up would otherwise fail, and with it the cleaning.
    """
    gone = [descriptor for descriptor in terminals if not is_there(descriptor)]
    if not gone:
        return
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in gone:
        os.dup2(nothing, descriptor)
    os.close(nothing)


def end(status: int) -> int:
    """`status` for `sys.exit`; ends the process itself where a thread would keep it alive.

    For the very end of the command line, when everything is closed.
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

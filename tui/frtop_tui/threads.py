"""Daemon threads: blocked file systems and resolvers must not keep the program from ending."""

from __future__ import annotations

import threading
from collections.abc import Callable


def start_daemon(target: Callable[[], object], name: str) -> threading.Thread:
    """Starts `target` in a daemon thread; `name` shows in stack dumps of frtop itself."""
    thread = threading.Thread(target=target, name=f"frtop {name}", daemon=True)
    thread.start()
    return thread

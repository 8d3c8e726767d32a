"""Lines of the audit for syslog, or the journal, which listens on the same socket.

Not by `syslog(3)`, which does not say whether anybody took a line.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

PREFIX: Final = "syslog"
"""How `--audit` names it: `syslog`, or `syslog:PATH` for another socket."""
SOCKET: Final = Path("/dev/log")
MAX_BYTES: Final = 7_000
"""Of a line: rsyslog cuts at 8 KiB unless it is told otherwise."""
PATIENCE_S: Final = 1.5
"""For a logger that is being restarted, or is behind."""
_PRIORITY: Final = 10 * 8 + 6
"""LOG_AUTHPRIV, LOG_INFO: what `sudo` and `sshd` use."""
_PAUSE_S: Final = 0.05
_PASSING: Final = (errno.ENOENT, errno.ECONNREFUSED, errno.EAGAIN, errno.ENOBUFS)


class SyslogSocket:
    """Sends a line at a time; each finds the logger anew."""

    def __init__(self, path: Path = SOCKET) -> None:
        self.path = path

    def send(self, line: Mapping[str, Any]) -> None:
        """Sends a line; waits `PATIENCE_S` at most.

        Raises:
            OSError: nobody takes it.
        """
        data = f"<{_PRIORITY}>frtop-audit[{os.getpid()}]: {_short(line)}".encode()
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                self._send(data)
            except OSError as error:
                if error.errno not in _PASSING or time.monotonic() > until:
                    error.filename = str(self.path)
                    raise
                time.sleep(_PAUSE_S)
            else:
                return

    def check(self) -> None:
        """Raises OSError where nobody listens."""
        try:
            self._send(b"")
        except OSError as error:
            error.filename = str(self.path)
            raise

    def _send(self, data: bytes) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as one:
            one.connect(str(self.path))
            if data:
                one.send(data)


def _short(line: Mapping[str, Any]) -> str:
    """The line as JSON, with as many of its ranks as fit."""
    text = json.dumps(line, separators=(",", ":"))
    ranks = line.get("ranks", ())
    shown = len(ranks)
    while len(text) > MAX_BYTES and shown:
        shown //= 2
        more = len(ranks) - shown + int(line.get("more_ranks", 0))
        short = {**line, "ranks": ranks[:shown], "more_ranks": more}
        text = json.dumps(short, separators=(",", ":"))
    return text

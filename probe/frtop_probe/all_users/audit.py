"""The audit: one line of JSON for each request that touches a rank, written before it is served.

What cannot be written is refused: a look that nobody could find later is not given. The file is
root's alone, only appended to, and never larger in all than `OLDER` + 1 times `MAX_BYTES`.
"""

from __future__ import annotations

import asyncio
import json
import os
import stat
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from frtop_probe import daemon_thread
from frtop_probe.all_users.syslog_socket import SyslogSocket

MAX_BYTES: Final = 16 * 1024 * 1024
OLDER: Final = 8
"""Earlier files that are kept: `audit.jsonl.1` is the newest of them."""
TIMEOUT_S: Final = 2.0
"""A file system that answers later counts as one that does not."""
MAX_RANKS: Final = 512
"""Ranks named in one line."""


class AuditProblem(Exception):
    """A line could not be written; the text says why."""


class AuditLog:
    """Appends to one file, and sends to syslog if asked. `write` needs a running event loop."""

    def __init__(
        self,
        path: Path,
        max_bytes: int = MAX_BYTES,
        older: int = OLDER,
        also: SyslogSocket | None = None,
    ) -> None:
        self.path = path
        self._also = also
        self._max_bytes = max_bytes
        self._older = older
        self._writing: asyncio.Future[None] | None = None

    @property
    def shown(self) -> str:
        """Where lines go, for people."""
        return f"{self.path}{f', and {self._also.path}' if self._also is not None else ''}"

    async def write(self, line: Mapping[str, object]) -> None:
        """Writes a line; waits at most `TIMEOUT_S`.

        Raises:
            AuditProblem: it was not written, or perhaps too late.
        """
        text = json.dumps(dict(line), separators=(",", ":")) + "\n"
        deadline = time.monotonic() + TIMEOUT_S
        while self._writing is not None and not self._writing.done():
            await _done(self._writing, deadline, self.path)

        def put() -> None:
            if self._also is not None:  # first: what is in the file was served
                self._also.send(line)
            self.append(text.encode())

        self._writing = daemon_thread.run(put, "frtop audit")
        self._writing.add_done_callback(lambda done: done.cancelled() or done.exception())
        await _done(self._writing, deadline, self.path)
        error = self._writing.exception()
        if error is not None:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            where = error.filename if isinstance(error, OSError) else None
            raise AuditProblem(f"{where or self.path}: {reason}") from error

    def check(self) -> None:
        """Raises OSError where lines cannot be written."""
        if self._also is not None:
            self._also.check()
        self.append(b"")

    def append(self, data: bytes) -> None:
        """Appends bytes, after the file was set aside if they do not fit into it.

        Raises:
            OSError: they cannot be written.
        """
        descriptor = self._open()
        try:
            if os.fstat(descriptor).st_size + len(data) > self._max_bytes:
                self._rotate()
                os.close(descriptor)
                descriptor = self._open()
            written = os.write(descriptor, data)
            if written < len(data):  # a full disk: no half lines
                os.ftruncate(descriptor, os.fstat(descriptor).st_size - written)
                raise OSError(28, "No space left on device", str(self.path))
        finally:
            os.close(descriptor)

    def _open(self) -> int:
        """Opens the file for appending.

        Raises:
            OSError: it cannot be opened, is no regular file, or others could change it.
        """
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(self.path, flags | os.O_NONBLOCK, 0o600)
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
            os.close(descriptor)
            raise OSError(1, "it must be a regular file of root's with mode 0600", str(self.path))
        return descriptor

    def _rotate(self) -> None:
        for number in range(self._older - 1, 0, -1):
            file = self._numbered(number)
            if file.exists():
                file.replace(self._numbered(number + 1))
        self.path.replace(self._numbered(1))

    def _numbered(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}")


def line_of(
    *,
    who: str,
    key: str,
    right: str,
    request: str,
    host: str,
    ranks: Sequence[tuple[str, int, int]],
    refused: str = "",
) -> dict[str, object]:
    """A line of the audit, see docs/all-users.md.

    Args:
        who: the name of the key in the list.
        key: the public key.
        right: what the key may do to these ranks: "read", "act", or "" for nothing.
        request: what was asked for.
        host: this host.
        ranks: user, pid and global rank (-1 unknown) of each rank that it touches.
        refused: why it was refused, "" if it was not.
    """
    now = time.time()
    at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now))
    line: dict[str, object] = {
        "time": f"{at}.{int(now * 1000) % 1000:03d}Z",
        "who": who,
        "key": key,
        "right": right,
        "request": request,
        "host": host,
        "ranks": [
            {"user": user, "pid": pid, "rank": rank} for user, pid, rank in ranks[:MAX_RANKS]
        ],
        "allowed": not refused,
    }
    if len(ranks) > MAX_RANKS:
        line["more_ranks"] = len(ranks) - MAX_RANKS
    if refused:
        line["why"] = refused
    return line


async def _done(writing: asyncio.Future[None], deadline: float, path: Path) -> None:
    rest = max(0.0, deadline - time.monotonic())
    done, _ = await asyncio.wait({writing}, timeout=rest)
    if not done:
        raise AuditProblem(f"{path} does not answer")

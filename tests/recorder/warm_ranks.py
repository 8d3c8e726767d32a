"""Ranks that are forked from a process with torch: each starts in 50 ms instead of two seconds.

How a rank starts from nothing is tested by itself (`test_sitecustomize`, `test_start`, e2e).
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from zlib import crc32

from waiting import wait_for

_PARENT = Path(__file__).with_name("warm_parent.py")


class WarmRank:
    """A running rank, with those methods of `Popen` that tests use."""

    def __init__(
        self,
        file: Path,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        standard: tuple[int, int, int],
        folder: Path | None = None,
    ) -> None:
        """Starts it; `standard` are its stdin, stdout and stderr."""
        program = {
            "file": str(file),
            "arguments": list(arguments),
            "environment": dict(environment),
            "folder": str(folder or Path.cwd()),
        }
        self._status, status = os.pipe()
        try:
            parent = _parent(environment.get("PYTHONPATH", ""))
            socket.send_fds(parent, [json.dumps(program).encode()], [*standard, status])
            answer = parent.recv(64)
        finally:
            os.close(status)
        assert answer, "the process that forks the ranks has ended"
        self.pid = int(answer)
        self.returncode: int | None = None

    def poll(self) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
            said = os.read(self._status, 64)
            os.close(self._status)
            assert said, "the process that forks the ranks has ended"
            self.returncode = int(said)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Kills it, and those of its children that have not left its process group."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)


@cache
def _parent(path: str) -> socket.socket:
    """Connects to the parent of all ranks of this run; the first process to ask starts it.

    Whether there is a recorder in them is decided by PYTHONPATH. The parent ends with the last
    process that is connected to it.
    """
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID") or os.getpid()
    name = f"\0frtop-tests {run} {crc32(path.encode())}"
    client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with listener, suppress(OSError):  # another process has the name
        listener.bind(name)
        listener.listen()
        process = subprocess.Popen(
            [sys.executable, "-W", "ignore", str(_PARENT)],
            env={name: value for name, value in os.environ.items() if "FRTOP" not in name}
            | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
            stdin=listener.fileno(), start_new_session=True,
        )  # fmt: skip
        atexit.register(process.wait)
    wait_for(lambda: client.connect_ex(name) == 0, "a listener")
    atexit.register(client.close)
    return client

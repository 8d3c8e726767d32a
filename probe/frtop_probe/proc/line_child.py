"""The parent's side of a child that may hang: JSON lines over a socket, for asyncio.

A call of the child may never return: a read of a stuck process, a driver. The parent then kills the
child after a deadline and leaves it to the kernel; it leaves only a few behind at a time.
For single calls that are not repeated, `risky_calls.py` forks.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from frtop_probe.proc import child_process, pid_stat
from frtop_probe.proc.memory import NotReadable, identify
from frtop_probe.proc.within import within

NO_CHILD: Final = "not readable: the program that reads did not start"
CHILD_ENDED: Final = "not readable: the program that reads ended"
TOO_MANY_LEFT: Final = "not readable: too many earlier reads have not returned"
CLOSED: Final = "not readable: the reader was closed"

_PATIENCE: Final = 5
"""A child that uses no CPU time gets this many deadlines, or one in an uninterruptible wait."""
_MOST: Final = 30
"""Most deadlines for a child that makes progress. If it were killed for being slow, its successor
would start over and never finish on an overloaded machine."""
_SAMPLES: Final = 5
_SAMPLE_S: Final = 0.02
_START_S: Final = 20.0
"""How long a child may take to start, in seconds, on a machine whose cores are all busy."""
_LINE: Final = 256 << 20
"""Most bytes of an answer: two full rings of 20,000 entries are 4 MB of JSON."""
_CLOSE_S: Final = 0.5
_BUSY_CLOSE_S: Final = 5.0
"""How long a killed child may take to end, in seconds, on a machine whose cores are all busy."""
_CLOSE_STEP_S: Final = 0.01


@dataclass(slots=True)
class _Child:
    process: subprocess.Popen[bytes]
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


class LineChild:
    """One child at a time; it answers each line with a line. The first request starts it."""

    def __init__(self, command: Sequence[str], *, max_left: int) -> None:
        """Takes a command that writes a line when it is ready.

        No child starts while `max_left` killed children have not ended.
        """
        self._command = command
        self._max_left = max_left
        self._child: _Child | None = None
        self._left: list[subprocess.Popen[bytes]] = []
        self._closed = False
        self.left_at = ""
        """The process name of the last child left behind: it says what the child was reading."""

    @property
    def runs(self) -> bool:
        """Whether there is a child now."""
        return self._child is not None

    def refuse_requests(self) -> None:
        """Starts no child from now on."""
        self._closed = True

    async def exchange(self, request: dict[str, Any], deadline_s: float) -> dict[str, Any]:
        """Sends a request to the child and abandons a child that does not answer.

        Raises:
            TimeoutError: It did not answer in time.
            NotReadable: It did not start, or it ended.
        """
        self._reap()
        child = await self._running_child()
        try:
            child.writer.write(json.dumps(request).encode() + b"\n")
            line = await self._line(child, deadline_s)
        except TimeoutError:
            self.abandon()
            raise
        except OSError as error:
            self.abandon()
            raise NotReadable(CHILD_ENDED, str(error)) from error
        except BaseException:  # cancelled: nobody wants this answer any more
            self.abandon()
            raise
        return self._parse(line)

    def _parse(self, line: bytes) -> dict[str, Any]:
        try:
            answer = json.loads(line)
        except ValueError as error:  # it ended, perhaps in the middle of an answer
            self.abandon()
            raise NotReadable(CHILD_ENDED) from error
        if not isinstance(answer, dict):
            self.abandon()
            raise NotReadable(CHILD_ENDED, "no answer")
        return answer

    async def close(self) -> None:
        """Ends the child; waits at most 0.5 s for children that the kernel holds."""
        self.abandon()
        begin = time.monotonic()
        while self._left and (waited := time.monotonic() - begin) < _BUSY_CLOSE_S:
            self._reap()
            if waited > _CLOSE_S and all(_state(process.pid) == "D" for process in self._left):
                break
            await asyncio.sleep(_CLOSE_STEP_S)

    async def _line(self, child: _Child, deadline_s: float) -> bytes:
        """Waits for an answer, and longer if the child merely lacks CPU time.

        Raises:
            TimeoutError: no answer came in time.
        """
        answer = asyncio.ensure_future(child.reader.readline())
        try:
            idle, used = 0, self._cpu_ticks(child)
            for _ in range(_MOST):
                done, _ = await asyncio.wait({answer}, timeout=deadline_s)
                if done:
                    return answer.result()
                before, used = used, self._cpu_ticks(child)
                idle = idle + 1 if used == before else 0
                if idle == _PATIENCE or await self._waits_in_kernel(child):
                    break
        except ValueError as error:  # a longer line than any answer
            raise ConnectionError(str(error)) from error
        finally:
            if not answer.done():
                answer.cancel()
        raise TimeoutError

    def _cpu_ticks(self, child: _Child) -> int:
        try:
            return identify(child.process.pid).cpu_ticks
        except NotReadable:  # it has ended
            return 0

    async def _waits_in_kernel(self, child: _Child) -> bool:
        """Whether the child stays in an uninterruptible wait; waits for a disk are short."""
        for _ in range(_SAMPLES):
            if (state := _state(child.process.pid)) != "D":
                return not state
            await asyncio.sleep(_SAMPLE_S)
        return True

    async def _running_child(self) -> _Child:
        if self._closed:
            raise NotReadable(CLOSED)
        if self._child is not None and self._child.process.poll() is not None:
            self.abandon()
        if self._child is None:
            if len(self._left) >= self._max_left:
                raise NotReadable(TOO_MANY_LEFT)
            child = await self._start()
            await self._wait_until_ready(child)
            self._child = child
        return self._child

    async def _start(self) -> _Child:
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                process = subprocess.Popen(
                    self._command,
                    stdin=theirs.fileno(),
                    stdout=theirs.fileno(),
                    stderr=subprocess.DEVNULL,
                    pass_fds=child_process.inherited(),
                    start_new_session=True,  # Ctrl+C in the terminal must not reach it
                )
        except OSError as error:
            ours.close()
            raise NotReadable(NO_CHILD, str(error)) from error
        try:
            ours.setblocking(False)
            reader, writer = await asyncio.open_connection(sock=ours, limit=_LINE)
        except BaseException:  # cancelled
            ours.close()
            process.kill()
            self._left.append(process)
            raise
        return _Child(process, reader, writer)

    async def _wait_until_ready(self, child: _Child) -> None:
        line = b""
        try:
            with contextlib.suppress(OSError, TimeoutError):
                line = await within(_START_S, child.reader.readline())
        finally:  # also when cancelled
            if not line.endswith(b"\n"):
                self._leave(child)
        if not line.endswith(b"\n"):
            raise NotReadable(NO_CHILD)

    def abandon(self) -> None:
        """Kills the child without waiting: a child stuck in a read dies once the read returns."""
        child, self._child = self._child, None
        if child is not None:
            self.left_at = _name(child.process.pid)
            self._leave(child)

    def _leave(self, child: _Child) -> None:
        child.writer.close()
        child.process.kill()
        self._left.append(child.process)

    def _reap(self) -> None:
        self._left = [process for process in self._left if process.poll() is None]


def _state(pid: int) -> str:
    """Returns a process's state: D is a wait in which no signal ends it; "" if it has ended."""
    found = pid_stat.read(f"/proc/{pid}")
    return "" if found is None else found.state


def _name(pid: int) -> str:
    """Returns a process's current name; "" if it has ended. Never blocks."""
    found = pid_stat.read(f"/proc/{pid}")
    return "" if found is None else found.name

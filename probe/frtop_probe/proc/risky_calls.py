"""Makes risky calls in children: the call may hang, or the kernel may kill its caller.

A read of a process that is stuck in a driver never returns, and a seccomp filter may kill the
caller. Children that hang are left behind. Several calls run at a time;
each answers with JSON through a pipe. An agent reads again and again, so it has a child that stays:
`line_child.py`.
"""

from __future__ import annotations

import json
import os
import select
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeVar

MAX_ANSWER: Final = 4 << 20
AT_ONCE: Final = 8
_CHUNK: Final = 65536
Key = TypeVar("Key")


@dataclass(frozen=True, slots=True)
class RiskyCall:
    """The outcome of a call.

    Attributes:
        value: what it returned; None if it did not.
        signal: the signal that ended it; 0 for none.
        timed_out: it took too long. The child was killed, but may still be stuck in the kernel.
    """

    value: Any = None
    signal: int = 0
    timed_out: bool = False


@dataclass(slots=True)
class Running:
    """A call that is under way in a child. `descriptor` becomes readable when there is news."""

    pid: int
    descriptor: int
    end: float
    answer: bytearray

    def result(self) -> RiskyCall | None:
        """Returns its outcome; None while it runs."""
        _read((self,))
        ended = _ended(self)
        if ended is not None:
            os.close(self.descriptor)
        return ended


def call(function: Callable[[], Any], seconds: float) -> RiskyCall:
    """Calls one function; JSON must be able to hold its result."""
    return call_all({0: function}, seconds)[0]


def call_all(functions: Mapping[Key, Callable[[], Any]], seconds: float) -> dict[Key, RiskyCall]:
    """Calls functions, each with its own deadline. If a function raises, its value is None."""
    waiting = list(functions.items())
    running: dict[Key, Running] = {}
    done: dict[Key, RiskyCall] = {}
    while waiting or running:
        while waiting and len(running) < AT_ONCE:
            key, function = waiting.pop(0)
            running[key] = start(function, seconds)
        _read(running.values())
        for key, one in list(running.items()):
            ended = _ended(one)
            if ended is not None:
                done[key] = ended
                os.close(one.descriptor)
                del running[key]
    return done


def start(function: Callable[[], Any], seconds: float) -> Running:
    """Begins a call."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        with suppress(BaseException):
            os.close(reader)
            answer = json.dumps(function()).encode()
            while answer:
                answer = answer[os.write(writer, answer) :]
            status = 0
        os._exit(status)
    os.close(writer)
    os.set_blocking(reader, False)
    return Running(pid, reader, time.monotonic() + seconds, bytearray())


def _read(running: Iterable[Running]) -> None:
    by_descriptor = {one.descriptor: one for one in running}
    ready, _, _ = select.select(list(by_descriptor), [], [], 0.02)
    for descriptor in ready:
        one = by_descriptor[descriptor]
        with suppress(BlockingIOError):
            while (part := os.read(descriptor, _CHUNK)) and len(one.answer) <= MAX_ANSWER:
                one.answer += part


def _ended(one: Running) -> RiskyCall | None:
    """Returns the result of a call that is over or out of time, else None."""
    pid, status = os.waitpid(one.pid, os.WNOHANG)
    if pid:
        _read((one,))
        if os.WIFSIGNALED(status):
            return RiskyCall(signal=os.WTERMSIG(status))
        try:
            return RiskyCall(json.loads(one.answer.decode()))
        except ValueError:
            return RiskyCall()
    if time.monotonic() < one.end and len(one.answer) <= MAX_ANSWER:
        return None
    os.kill(one.pid, signal.SIGKILL)
    with suppress(ChildProcessError):
        os.waitpid(one.pid, os.WNOHANG)
    return RiskyCall(timed_out=True)

"""The parent's side of a child that reads gauges; asks it less often if it hangs or fails."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from frtop_probe.proc import child_process
from frtop_probe.proc.line_child import LineChild
from frtop_probe.proc.memory import NotReadable

DEADLINE_S: Final = 5.0
FIRST_PAUSE_S: Final = 60.0
LONGEST_PAUSE_S: Final = 3600.0
"""Longest pause after a call that hung. Each such call costs a child and doubles the pause."""
MAX_LEFT: Final = 2
"""Most children that may hang at a time; each takes about 20 MB."""
Reading = TypeVar("Reading")


class PausingChild:
    """Sends one child one request at a time; pauses after a failure, longer each time.

    Attributes:
        module: The module that the child runs by default.
        hangs: The problem if a child does not answer.
        fails: The problem if a child ends or does not start.
    """

    module = ""
    hangs = ""
    fails = ""

    def __init__(
        self,
        *,
        deadline_s: float = DEADLINE_S,
        pause_s: float = FIRST_PAUSE_S,
        command: Sequence[str] | None = None,
    ) -> None:
        """The child starts with the first request, in the main thread.

        Args:
            deadline_s: Seconds for an answer. NVML takes about 0.05 s for eight GPUs, but seconds
                for the first answer, because it opens then.
            pause_s: Seconds without a child after the first failure.
            command: Program that answers each line with a line; by default `module`.
        """
        program = command or (*child_process.python_command(self.module), str(os.getpid()))
        self._lines = LineChild(program, max_left=MAX_LEFT)
        self._deadline_s = deadline_s
        self._first_pause_s = pause_s
        self._pause_s = pause_s
        self._not_before = 0.0
        self._problem = ""

    @property
    def runs(self) -> bool:
        """Whether there is a child now."""
        return self._lines.runs

    async def ask(
        self, request: dict[str, Any], parse: Callable[[dict[str, Any]], Reading]
    ) -> Reading | None:
        """The answer as `parse` reads it; None during a pause, or if one begins: see `_problem`."""
        if time.monotonic() < self._not_before:
            return None
        try:
            reading = parse(await self._lines.exchange(request, self._deadline_s))
        except TimeoutError:
            self._pause(self.hangs)
        except (NotReadable, KeyError, TypeError, ValueError, OverflowError):
            if self._problem != self.hangs:  # else: those that hang are still there
                self._problem = self.fails
            self._lines.abandon()
            self._pause(self._problem)
        else:
            return reading
        return None

    async def stop(self) -> None:
        """Ends the child; the next request starts another."""
        await self._lines.close()

    async def close(self) -> None:
        """Ends the child for good."""
        self._lines.refuse_requests()
        await self._lines.close()

    def _well(self) -> None:
        """Notes that the child works again: the next failure counts as the first one."""
        self._problem, self._pause_s = "", self._first_pause_s

    def _pause(self, problem: str) -> None:
        self._problem = problem
        self._not_before = time.monotonic() + self._pause_s
        self._pause_s = min(LONGEST_PAUSE_S, 2 * self._pause_s)

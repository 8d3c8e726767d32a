"""A real `frtop stream` that runs beside a job, and what it has said so far."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

PIPE_BYTES: Final = 4096
"""So small that a reader who stops is noticed."""
AT_FIRST: Final = 64
"""Among its first ops, a stream leaves out those that were over before it began."""
END_S: Final = 30.0
CLOCK_S: Final = 5.0
"""As much may the times of two events differ from what they are: writing takes time."""
WAIT_S: Final = 100
"""So long it waits for the job: its `--wait`."""
TRACEBACK: Final = "Traceback (most recent call last)"


class Gaps:
    """Numbers of a stream's ops that it has left out, and how many it has counted as lost."""

    def __init__(self) -> None:
        self._first: dict[tuple[int, str], int] = {}
        self._newest: dict[tuple[int, str], int] = {}
        self._missing: set[tuple[int, str, int]] = set()
        self._counted = 0
        self._unassigned: Counter[tuple[int, int]] = Counter()
        """Ops shown without a group, which nobody could tell: their ranks and numbers."""

    def take(self, event: dict[str, Any]) -> None:
        """Takes an event; only collectives with exact numbers have one for each op."""
        if event["event"] == "lost":
            self._counted += event["counts"].get("op_issued", 0)
        elif event["event"] != "op_issued" or event["p2p"]:
            return
        elif not event["group"]:
            self._unassigned[event["rank"], event["number"]] += 1
        elif event["exact"]:
            which, number = (event["rank"], event["group"]), event["number"]
            begin = self._first.setdefault(which, number) + AT_FIRST
            newest = self._newest.get(which, number - 1)
            self._newest[which] = max(number, newest)
            left_out = range(max(begin, newest + 1), number)
            self._missing.update((*which, one) for one in left_out)
            self._missing.discard((*which, number))  # an op may be seen late

    @property
    def hidden(self) -> str:
        """Which ops are neither written nor counted as lost; "" if there are none."""
        shown, hidden = self._unassigned.copy(), []
        for rank, group, number in sorted(self._missing):
            if shown[rank, number]:
                shown[rank, number] -= 1
            else:
                hidden.append((rank, group, number))
        count = len(hidden) - self._counted
        return f"{count}, among them {hidden[:8]}" if count > 0 else ""


class Stream:
    """Starts it, reads it in a thread, and can hurt it."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._command = tuple(command)
        self._environment = dict(environment)
        self._reads = threading.Event()
        self.counts: Counter[str] = Counter()
        """Of events, of all that were started; `gave up` counts those that never found the job."""
        self.problem = ""
        """What went wrong in it."""
        self._begin()

    def start(self) -> None:
        """Starts another one if it has ended, which knows nothing of the one before."""
        if self._ended_by_us:
            self._begin()

    def _begin(self) -> None:
        self._begun: tuple[float, float] | None = None
        self.health = ""
        self.states: dict[int, str] = {}
        self.verdicts: dict[int, dict[str, Any]] = {}
        self.gaps = Gaps()
        self._reads.set()
        self._ended_by_us = False
        self._process = subprocess.Popen(
            self._command, env=self._environment, text=True, bufsize=1,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, pipesize=PIPE_BYTES,
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read, args=(self._process,), daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, number: int) -> None:
        """Sends a signal."""
        with suppress(ProcessLookupError):
            self._process.send_signal(number)

    def read(self, on: bool) -> None:
        """Whether its output is read."""
        (self._reads.set if on else self._reads.clear)()

    def end(self, number: int = signal.SIGINT) -> None:
        """Ends it as a person does, or kills it."""
        self._ended_by_us = True
        self._reads.set()
        self.send(signal.SIGCONT)
        self.send(number)
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self.problem = self.problem or f"the stream did not end within {END_S:.0f} s"
            self._process.kill()
            self._process.wait()
        self._reader.join(END_S)

    @property
    def blames(self) -> list[tuple[str, list[int]]]:
        """Kind and culprits of all present verdicts."""
        return [(one["kind"], one["culprits"]) for one in list(self.verdicts.values())]

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        begun = time.monotonic()
        try:
            for line in process.stdout:
                self._take(json.loads(line))
                self._reads.wait()
        except (ValueError, KeyError) as error:
            if not self._ended_by_us:  # a killed one may end within a line
                self.problem = self.problem or f"the stream's output: {error!r}"
        with process:
            errors = process.stderr.read()
        lasted_s = time.monotonic() - begun
        if (
            process.returncode == 1
            and not self.health
            and "frtop: " in errors
            and lasted_s > WAIT_S
        ):
            self.counts["gave up"] += 1  # it said why, and nobody had seen the job in it
            self._ended_by_us = True
        elif TRACEBACK in errors or not self._ended_by_us:
            self.problem = self.problem or (
                f"the stream ended with status {process.returncode} after {lasted_s:.0f} s:"
                f" {errors[-2000:]}"
            )

    def _take(self, event: dict[str, Any]) -> None:
        kind, at_s, now = event["event"], event["at_s"], time.monotonic()
        first_s, begun = self._begun = self._begun or (at_s, now)
        # Clocks that jump move no event: it is as old as our monotonic clock says, or older.
        if not first_s - CLOCK_S <= at_s <= first_s + now - begun + CLOCK_S:
            self.problem = self.problem or f"{now - begun:.1f} s after {first_s}: {event}"
        self.counts[kind] += 1
        self.gaps.take(event)
        if kind == "job":  # its ranks were started again: what was told is about those before
            self.health, self.states, self.verdicts = "", {}, {}
        elif kind == "health":
            self.health = event["health"]
        elif kind == "state" and event["state"] == "gone":
            self.states.pop(event["rank"], None)
        elif kind == "state":
            self.states[event["rank"]] = event["state"]
        elif kind == "verdict" and event["phase"] == "over":
            self.verdicts.pop(event["id"], None)
        elif kind == "verdict":
            self.verdicts[event["id"]] = event["verdict"]

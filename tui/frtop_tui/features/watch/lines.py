"""The watcher's lines about jobs, as JSON, and the thread that writes them.

Keys are only ever added. A reader that stalls, a full disk or a closed terminal holds up nothing
else: lines that were lost are counted, and the next line that is written has their number.
"""

from __future__ import annotations

import json
import os
import queue
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from frtop_probe.proc import daemon_thread
from frtop_tui.diagnosis.model import Frame, Verdict
from frtop_tui.features.watch.episodes import Decision
from frtop_tui.job.naming import job_title, printable
from frtop_tui.job.units import utc_time
from frtop_tui.registry import notes_on
from frtop_tui.text.json_document import document

MOST_WAITING: Final = 1_000
CLOSING_S: Final = 2.0


def _write(text: str) -> None:
    """Bypasses Python's buffers, which would keep what a full disk refused."""
    descriptor, left = sys.stdout.fileno(), memoryview(text.encode())
    while left:
        left = left[os.write(descriptor, left) :]


class EventLines:
    """Writes JSON objects, one per line."""

    def __init__(self, write: Callable[[str], None] = _write) -> None:
        self._write = write
        self._waiting: queue.Queue[dict[str, Any] | None] = queue.Queue(MOST_WAITING)
        self._lost = 0
        self._complained = False
        self._thread = daemon_thread.start(self._work, "frtop watch lines")

    def put(self, event: dict[str, Any]) -> None:
        """Queues a line. Never blocks."""
        try:
            self._waiting.put_nowait(event)
        except queue.Full:
            self._lost += 1

    @property
    def idle(self) -> bool:
        """Whether each line was written or lost."""
        return self._waiting.unfinished_tasks == 0

    def close(self) -> None:
        """Waits briefly for the remaining lines."""
        with suppress(queue.Full):
            self._waiting.put_nowait(None)
        self._thread.join(CLOSING_S)

    def _work(self) -> None:
        while (event := self._waiting.get()) is not None:
            if self._lost:
                event = {**event, "lines_lost": self._lost}
            try:
                # The previous line may have been written in part: this one must start a new line.
                start = "\n" if self._lost else ""
                # The only control character that json does not escape.
                line = json.dumps(event, allow_nan=False).replace("\x7f", "\\u007f")
                self._write(f"{start}{line}\n")
            except (OSError, ValueError) as error:  # ValueError: it was closed
                self._lost += 1
                self._complain(error)
            else:
                self._lost = 0
                self._complained = False
            self._waiting.task_done()

    def _complain(self, error: Exception) -> None:
        if self._complained:
            return
        self._complained = True
        with suppress(OSError, ValueError):
            text = getattr(error, "strerror", None) or str(error)
            sys.stderr.write(f"frtop: lines are lost: {text}; frtop watch goes on\n")
            sys.stderr.flush()


def stamped(event: dict[str, Any], wall_ns: int) -> dict[str, Any]:
    return {"at": utc_time(wall_ns, "milliseconds"), **event}


def event_of(frame: Frame, decision: Decision) -> dict[str, Any]:
    """The event for a decision, with the verdict if there is one."""
    event: dict[str, Any] = {"event": decision.what, "cause": decision.cause}
    if decision.why:
        event["why"] = decision.why
    if decision.verdict is None:
        return {**about(frame), **event}
    known = document(frame)
    return {
        **event,
        "job": known["job"],
        "health": frame.health,
        "verdict": known["verdicts"][0],
        "culprits": culprits_of(frame, decision.verdict),
        "coverage": known["coverage"],
    }


def beside(frame: Frame) -> list[str]:
    """What features know of the verdict from elsewhere, such as lines that its ranks wrote.

    The history has a key of its own.
    """
    known = notes_on(frame)
    return [printable(line) for name, lines in known.items() if name != "before" for line in lines]


def about(frame: Frame) -> dict[str, Any]:
    """The job's part of the document."""
    return {"job": document(frame)["job"], "health": frame.health}


def culprits_of(frame: Frame, verdict: Verdict) -> list[dict[str, Any]]:
    """The ranks to blame, and where they run."""
    views = [frame.ranks[rank] for rank in verdict.culprits if rank in frame.ranks]
    return [
        {"rank": view.rank, "host": view.host, "pid": view.identity.pid,
         "local_rank": view.identity.local_rank}
        for view in views
    ]  # fmt: skip


def variables_of(frame: Frame, event: dict[str, Any], capture: str) -> dict[str, str]:
    """Environment variables for a command: what a shell line needs, all printable."""
    verdict = event.get("verdict") or {}
    hosts = sorted({one["host"] for one in event.get("culprits", ())})
    values = {
        "FRTOP_EVENT": event["event"],
        "FRTOP_JOB": job_title(frame.job) if frame.job is not None else "",
        "FRTOP_KIND": verdict.get("kind", ""),
        "FRTOP_CAUSE": (verdict.get("why") or {}).get("cause", ""),
        "FRTOP_HEADLINE": verdict.get("headline", ""),
        "FRTOP_BESIDE": next(iter(event.get("beside", ())), ""),
        "FRTOP_CULPRITS": ",".join(map(str, verdict.get("culprits", ()))),
        "FRTOP_HOSTS": ",".join(hosts),
        "FRTOP_CAPTURE": capture,
    }
    return {name: printable(value) for name, value in values.items()}

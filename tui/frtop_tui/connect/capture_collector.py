"""Collects everything that can be known of a job now, for a capture or an export.

Snapshots with stacks come first, as they show one moment; beside and after them the histories,
which do not change; then the tensors, for which the ranks themselves are asked. Each host has few
requests at a time, for a bounded number of ranks; `HOSTS_AT_ONCE` hosts are asked in
parallel. The capture names what did not come in time.
"""

from __future__ import annotations

import os
from collections import defaultdict, deque
from collections.abc import Callable
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Final, Literal

from msgspec.structs import replace

from frtop_probe import wire
from frtop_probe.history_columns import length
from frtop_tui.connect.capture_steps import TENSOR_ERRORS, Kind, Step, plan
from frtop_tui.connect.file_worker import FileWorker
from frtop_tui.connect.request_tracker import RequestTracker
from frtop_tui.diagnosis.confirmation import Settling
from frtop_tui.diagnosis.model import Frame
from frtop_tui.files import capture
from frtop_tui.files.output_path import write_unused
from frtop_tui.job.model import Problem, Writing
from frtop_tui.job.naming import folded, same_job

DEADLINE_NS: Final = 20_000_000_000
HOSTS_AT_ONCE: Final = 32
"""Responses that may come in together: each is decoded between two updates."""
HISTORIES_AT_ONCE: Final = 2
"""Of one host, which reads one while the other is on its way; of all else it has one request."""
MAX_ROWS: Final = 1_000_000
"""Ops in all histories together: whoever opens the file holds them all, at some 300 bytes each."""
INTERRUPTED: Final = "it was interrupted"


class CaptureCollector:
    """One capture, from the command to the file. Belongs to the source's thread."""

    def __init__(
        self,
        tracker: RequestTracker,
        files: FileWorker,
        frame: Frame,
        *,
        path: Path,
        now: int,
        settle_ns: int = 0,
        redact: bool = False,
        automatic: bool = False,
        kind: Literal["capture", "export"] = "capture",
        write: Callable[..., int] = capture.write,
        may_replace: bool = True,
    ) -> None:
        """Asks for all that can be known of the job in `frame`.

        Args:
            tracker: sends the requests.
            files: runs `write`.
            frame: the ranks to ask.
            path: of the file.
            automatic: whether frtop captures by itself.
            now: operator's clock.
            settle_ns: how long from now on to wait for a verdict that is settled.
            redact: whether to replace names and data in the file.
            kind: of the file.
            write: writes the file.
            may_replace: whether a file that is there now is replaced.
        """
        self._tracker = tracker
        self._files = files
        self._write = partial(write, redact=True) if redact else write
        self._path = path
        self._replace_existing = False
        self._job = frame.job
        self._until = now + DEADLINE_NS
        self._settling = Settling(now)
        self._settle_until = now + settle_ns
        self._histories: dict[int, wire.HistoryResponse] = {}
        self._missing: dict[tuple[Kind, str], set[int]] = defaultdict(set)
        self._steps: dict[str, deque[Step]] = {}  # by host
        self._agents: dict[str, int] = {}  # by host
        self._left = dict.fromkeys(frame.ranks, 0)  # rank -> its steps that are still to come
        self._under_way: dict[str, dict[int, tuple[int, Step]]] = {}
        """By host, the number of the request and the step, by the step's identity."""
        self._limit = 0  # ops per history
        self._complete_ns = 0  # when all was there; a frame from then on contains it
        self._wants_frame = False
        self._may_replace = may_replace
        self.writing = Writing(
            kind,
            "collecting",
            str(path),
            total=len(frame.ranks),
            automatic=automatic,
            at_ns=now,
        )
        if not frame.ranks:
            self._fail(
                Problem("no rank of a job is known yet", "wait until a rank is reporting"), now
            )
            return
        files.submit_silently(self._check_path)
        self._limit = max(1, MAX_ROWS // len(frame.ranks))
        # Devices are read for a person only.
        steps, missing = plan(frame, self._limit, devices=not automatic)
        self._steps |= {host: deque(some) for host, some in steps.items()}
        self._agents |= {host: tracker.agent(host) for host in steps}
        for why, ranks in missing.items():
            self._missing[why] |= ranks
        for step in chain.from_iterable(steps.values()):
            for rank in step.ranks:
                self._left[rank] += 1

    @property
    def over(self) -> bool:
        return self.writing.state in ("written", "failed")

    @property
    def wants_frame(self) -> bool:
        """Whether all was collected after the last frame was judged."""
        return self._wants_frame and self.writing.state == "collecting"

    def finish(self, now: int) -> None:
        """Goes on with what has come: the operator does not want to wait any longer."""
        if self.writing.state == "collecting":
            self._give_up(INTERRUPTED)
            self._settle_until = self._complete_ns = now

    def refuse(self, path: Path) -> None:
        """Rejects another capture while this one is under way."""
        doing = "capturing" if self.writing.kind == "capture" else "exporting"
        problem = Problem(f"already {doing}: {path} was not begun", "repeat it afterwards")
        self.writing = replace(self.writing, problem=problem)

    def update(self, frame: Frame, now: int) -> None:
        """Sends what can be asked now; writes `frame` when it contains all responses."""
        if self.writing.state != "collecting":
            return
        if not same_job(frame.job, self._job):
            self._give_up("another job is shown")
            self._fail(
                Problem("another job is shown now", "choose the first one again, repeat"), now
            )
            return
        settled = self._settling.is_over(frame, now)
        if now >= self._until:
            self._give_up(f"no response in {DEADLINE_NS / 1e9:.0f} s")
        else:
            self._send(now)
        done = sum(left <= 0 for left in self._left.values())
        if done != self.writing.done:
            self.writing = replace(self.writing, done=done)
        if self._steps or self._under_way:
            return
        self._complete_ns = self._complete_ns or now
        self._wants_frame = frame.now_ns < self._complete_ns
        if self._wants_frame:
            return
        if settled or now >= self._settle_until:
            self._finish(frame, now)

    def _check_path(self) -> None:
        """Runs in the file worker: a file that is there now is replaced, a later one is not."""
        self._replace_existing = self._may_replace and os.path.lexists(self._path)

    def _send(self, now: int) -> None:
        for host, steps in list(self._steps.items()):
            if host not in self._under_way and len(self._under_way) >= HOSTS_AT_ONCE:
                continue
            while (step := self._next(host, steps)) is not None:
                steps.remove(step)
                received = partial(self._received, host, step)
                timeout_ns = max(1, self._until - now)
                number = self._tracker.request(
                    host, step.request, received, now, timeout_ns=timeout_ns,
                    agent=self._agents[host],
                )  # fmt: skip
                self._under_way.setdefault(host, {})[id(step)] = number, step
            if not steps:
                del self._steps[host]

    def _next(self, host: str, steps: deque[Step]) -> Step | None:
        """The step to take beside those under way: while stacks are taken, the agent is idle."""
        kinds = [step.kind for _, step in self._under_way.get(host, {}).values()]
        if not kinds or not steps:
            return steps[0] if steps else None
        if steps[0].kind == "stacks" and "stacks" not in kinds:
            return steps[0]
        most = 1 if "stacks" in kinds else HISTORIES_AT_ONCE
        if "tensors" in kinds or kinds.count("history") >= most:
            return None
        return next((step for step in steps if step.kind == "history"), None)

    def _received(self, host: str, step: Step, response: wire.Response, _now: int) -> None:
        """Keeps a history; snapshots, gauges and tensors are in the job's state already."""
        under_way = self._under_way.get(host, {})
        under_way.pop(id(step), None)
        if not under_way:
            self._under_way.pop(host, None)
        if isinstance(response, wire.HistoryResponse):
            self._keep_history(step.ranks[0], response)
        elif isinstance(response, wire.SnapshotResponse):
            self._note_failed_dumps(step, response)
        elif isinstance(response, wire.TensorsResponse):
            if response.error:
                why = TENSOR_ERRORS.get(response.error) or response.help or response.error
                self._missing["tensors", why].update(step.ranks)
        elif not isinstance(response, wire.GaugeHistoryResponse):
            why = (
                response.text
                if isinstance(response, wire.Error)
                else "the response is of another kind"
            )
            self._missing[step.kind, why].update(step.ranks)
        for rank in step.ranks:
            self._left[rank] -= 1

    def _keep_history(self, rank: int, response: wire.HistoryResponse) -> None:
        history = response.history
        try:
            rows = length(history.columns) if history.columns is not None else len(history.rows)
        except ValueError as error:
            self._missing["history", f"the response is malformed ({error})"].add(rank)
            return
        if rows > self._limit:
            self._missing["history", "the response is longer than the request allows"].add(rank)
        else:
            self._histories[rank] = response
        if rows >= self._limit:
            why = f"only the newest {self._limit:,} ops of each were asked for"
            self._missing["complete history", why].add(rank)

    def _note_failed_dumps(self, step: Step, response: wire.SnapshotResponse) -> None:
        assert isinstance(step.request, wire.SnapshotRequest)
        ranks = dict(zip(step.request.keys, step.ranks, strict=True))
        for snapshot in response.snapshots:
            failed = next(
                (dump for dump in snapshot.dumps if dump.error and not dump.threads), None
            )
            if failed is not None and snapshot.key in ranks:
                self._missing["stacks", failed.help or failed.error].add(ranks[snapshot.key])

    def _give_up(self, why: str) -> None:
        """Names what is still missing, and goes on without it."""
        for number, step in (one for each in self._under_way.values() for one in each.values()):
            self._tracker.drop(number)
            self._missing[step.kind, why].update(step.ranks)
        for steps in self._steps.values():
            for step in steps:
                self._missing[step.kind, why].update(step.ranks)
        self._under_way.clear()
        self._steps.clear()

    def _finish(self, frame: Frame, now: int) -> None:
        missing = [
            f"no {kind} of {folded(ranks)}: {why}" for (kind, why), ranks in self._missing.items()
        ]
        total = self.writing.total
        self.writing = replace(self.writing, state="writing", done=total, at_ns=now)
        histories = self._histories

        def write(path: Path) -> int:
            over = self._replace_existing and path == self._path
            try:
                return self._write(path, frame, histories, missing, over=over)
            except OSError as error:
                error.filename = str(path)  # of a full disk it is unknown, else that of a draft
                raise

        task = partial(write_unused, self._path, write)
        problem = Problem("; ".join(missing)) if missing else None
        self._files.submit(task, partial(self._written, problem), self._fail)

    def _written(self, problem: Problem | None, put: tuple[Path, int], now: int) -> None:
        self._histories = {}
        path, size = put
        self.writing = replace(
            self.writing, state="written", path=str(path), size=size, problem=problem, at_ns=now
        )

    def _fail(self, problem: Problem, now: int) -> None:
        self._histories = {}
        self.writing = replace(self.writing, state="failed", problem=problem, at_ns=now)

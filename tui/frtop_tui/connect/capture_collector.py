"""Collects everything that can be known about a job now, for a capture or an export.

Snapshots with stacks come first, as they show one moment; next the histories, which do not change;
then the tensors, which the ranks themselves send. Each host gets few requests at a time, for a
bounded number of ranks, `HOSTS_AT_ONCE` hosts in parallel. The capture lists what did not arrive in
time.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Final, Literal

from msgspec.structs import replace

from frtop_probe import wire
from frtop_probe.history_columns import length
from frtop_tui.connect.file_worker import FileWorker
from frtop_tui.connect.request_tracker import RequestTracker
from frtop_tui.diagnosis.confirmation import Settling
from frtop_tui.diagnosis.evidence.dataloader_worker import children_in_question
from frtop_tui.diagnosis.model import Frame, JudgedRank
from frtop_tui.files import capture
from frtop_tui.files.formats.writing import write_collected
from frtop_tui.files.output_path import write_unused
from frtop_tui.job.model import Problem, Writing
from frtop_tui.job.naming import folded, same_job

DEADLINE_NS: Final = 20_000_000_000
RECOVERY_NS: Final = 10_000_000_000
"""Requests load the hosts. Those that fell silent get this long to report again, and a verdict that
was confirmed to be so again, before the frame is written."""
HOSTS_AT_ONCE: Final = 32
"""Responses that may arrive together: each is decoded between two updates."""
HISTORIES_AT_ONCE: Final = 2
"""Per host: it reads one while the other is on its way. Other requests go one at a time."""
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
        """Collects all that can be known about the job in `frame`.

        If `automatic`, it reads no devices. After `settle_ns` it no longer waits for a settled
        verdict. It replaces an existing file only if it `may_replace` files.
        """
        self._tracker = tracker
        self._files = files
        self._write = partial(write, redact=True) if redact else write
        self._path = path
        self._replace_existing = False
        self._job = frame.job
        self._reporting = {r for r, view in frame.ranks.items() if view.state != "unreachable"}
        self._was_confirmed = bool(frame.verdicts) and Settling(now).is_over(frame, now)
        self._recover_until: int | None = None
        self._until = now + DEADLINE_NS
        self._settling = Settling(now)
        self._settle_until = now + settle_ns
        self._histories: dict[int, wire.HistoryResponse] = {}
        self._missing: dict[tuple[Kind, str], set[int]] = defaultdict(set)
        self._steps: dict[str, deque[Step]] = {}  # by host
        self._agents: dict[str, int] = {}  # by host
        self._left = dict.fromkeys(frame.ranks, 0)  # rank -> its remaining steps
        self._under_way: dict[tuple[str, Step], int] = {}
        self._limit = 0  # ops per history
        self._complete_ns = 0  # when everything had arrived; frames from then on contain it
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
        # Only a person's capture reads devices.
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
        """Whether everything was collected after the last frame was judged."""
        return self._wants_frame and self.writing.state == "collecting"

    def finish(self, now: int) -> None:
        """Continues with what has arrived: the operator does not want to wait any longer."""
        if self.writing.state == "collecting":
            self._give_up(INTERRUPTED)
            self._settle_until = self._complete_ns = self._recover_until = now

    def refuse(self, path: Path) -> None:
        """Rejects another capture while this one is under way."""
        doing = "capturing" if self.writing.kind == "capture" else "exporting"
        problem = Problem(f"already {doing}: {path} was not started", "try again afterwards")
        self.writing = replace(self.writing, problem=problem)

    def update(self, frame: Frame, now: int) -> None:
        """Sends the requests possible now; writes `frame` once it contains all responses."""
        if self.writing.state != "collecting":
            return
        if not same_job(frame.job, self._job):
            self._give_up("another job is shown")
            self._fail(
                Problem("another job is shown now", "choose the first one again, and retry"), now
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
        settles = not settled and now < self._settle_until
        if not settles and not self._recovers(frame, now, settled=settled):
            self._finish(frame, now)

    def _recovers(self, frame: Frame, now: int, *, settled: bool) -> bool:
        """Whether what the requests have hidden may come back soon."""
        if self._recover_until is None:
            self._recover_until = now + RECOVERY_NS
        hidden = self._silenced(frame) or (self._was_confirmed and not settled)
        return bool(hidden) and now < self._recover_until

    def _silenced(self, frame: Frame) -> set[int]:
        """The ranks that reported at the beginning, and do not now."""
        unreachable = {r for r, view in frame.ranks.items() if view.state == "unreachable"}
        return self._reporting & unreachable

    def _check_path(self) -> None:
        """Runs in the file worker: the capture may replace a file that exists now, no later one."""
        self._replace_existing = self._may_replace and os.path.lexists(self._path)

    def _send(self, now: int) -> None:
        for host, steps in list(self._steps.items()):
            asked = {name for name, _ in self._under_way}
            if host not in asked and len(asked) >= HOSTS_AT_ONCE:
                continue
            while (step := self._next(host, steps)) is not None:
                steps.remove(step)
                received = partial(self._received, step)
                timeout_ns = max(1, self._until - now)
                self._tracker.request(
                    host, step.request, received, now, timeout_ns=timeout_ns,
                    agent=self._agents[host], under_way=self._under_way, about=(host, step),
                )  # fmt: skip
            if not steps:
                del self._steps[host]

    def _next(self, host: str, steps: deque[Step]) -> Step | None:
        """The next step that fits beside the current ones: an agent idles while it takes stacks."""
        kinds = [step.kind for name, step in self._under_way if name == host]
        if not kinds or not steps:
            return steps[0] if steps else None
        if steps[0].kind == "stacks" and "stacks" not in kinds:
            return steps[0]
        most = 1 if "stacks" in kinds else HISTORIES_AT_ONCE
        if "tensors" in kinds or kinds.count("history") >= most:
            return None
        return next((step for step in steps if step.kind == "history"), None)

    def _received(self, step: Step, response: wire.Response, _now: int) -> None:
        """Keeps a history; snapshots, gauges and tensors are in the job's state already."""
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
            rows = length(history.columns) if history.columns is not None else 0
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
        """Lists what is still missing, and continues without it."""
        asked = (step for _, step in self._under_way)
        for step in chain(asked, *self._steps.values()):
            self._missing[step.kind, why].update(step.ranks)
            self._reporting.difference_update(step.ranks)
            self._was_confirmed = False  # the silence may be what is wrong
        self._tracker.drop(*self._under_way.values())
        self._steps.clear()

    def _finish(self, frame: Frame, now: int) -> None:
        if silenced := self._silenced(frame):
            why = "they stopped reporting while this was collected"
            self._missing["news", why] |= silenced
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
                error.filename = str(path)  # unset on a full disk, else the draft's
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


RANKS_PER_SNAPSHOT: Final = 8
OPS_PER_SNAPSHOT: Final = 32
NO_RECORDER: Final = "they have no recorder, and are seen from outside"
_UNRESPONSIVE: Final = ("silent", "stopped", "dead", "done", "unreachable")
"""Ranks that cannot respond; asking each of them would take seconds."""

TENSOR_ERRORS: Final = {
    "none": "no pending op has tensors",
    "missing": "the recorder does not respond: it is older, could not start, or its socket file"
    " was deleted",
}
"""Errors of responses, for several ranks at once."""

Kind = str  # "stacks", "history", "gauges", "tensors"
Missing = dict[tuple[Kind, str], set[int]]
"""Ranks by what they lack, and why."""


@dataclass(frozen=True, slots=True)
class Step:
    """One request to one host, and the ranks that it concerns."""

    kind: Kind
    ranks: tuple[int, ...]
    request: wire.Request


def plan(frame: Frame, limit: int, *, devices: bool) -> tuple[dict[str, list[Step]], Missing]:
    """The steps by host, stacks first, and what is known to be missing."""
    steps: dict[str, list[Step]] = {}
    missing: Missing = defaultdict(set)
    hosts: dict[str, list[JudgedRank]] = defaultdict(list)
    for view in frame.ranks.values():
        if view.state == "unreachable":
            missing["stacks or history", f"{view.host} is unreachable"].add(view.rank)
        else:
            hosts[view.host].append(view)
    with_gauges = {host.name for host in frame.hosts if host.gauges is not None}
    may_act = {host.name: host.may_act and not frame.read_only for host in frame.hosts}
    for name, views in hosts.items():
        without = {view.rank for view in views if not view.identity.prepared}
        if without:
            missing["tensors", NO_RECORDER] |= without
        recorded = [view for view in views if view.rank not in without]
        # Once a process has ended, nobody can read what torch recorded in it.
        asked = [one for one in views if one.identity.prepared or one.exit_info is None]
        some = [*_snapshots(views), *_histories(asked, limit)]
        if name in with_gauges:
            numbers = tuple(view.rank for view in views)
            some.append(Step("gauges", numbers, wire.GaugeHistoryRequest(0)))
        if may_act.get(name, True):
            some += _tensors(recorded, missing, devices=devices)
        elif pending := {view.rank for view in recorded if view.pending}:
            why = frame.read_only or f"our key may only read on {name}"
            missing["tensors", why] |= pending
        if some:  # ranks without a recorder that have ended get no request
            steps[name] = some
    return steps, missing


def _snapshots(views: list[JudgedRank]) -> list[Step]:
    steps = []
    living = [view for view in views if view.exit_info is None]
    for start in range(0, len(living), RANKS_PER_SNAPSHOT):
        some = living[start : start + RANKS_PER_SNAPSHOT]
        request = wire.SnapshotRequest(
            0,
            keys=tuple(view.key for view in some),
            stacks=True,
            ops=OPS_PER_SNAPSHOT,
            pids=tuple(pid for view in some for pid in children_in_question(view)),
        )
        steps.append(Step("stacks", tuple(view.rank for view in some), request))
    return steps


def _histories(views: Iterable[JudgedRank], limit: int) -> list[Step]:
    return [
        Step("history", (view.rank,), wire.HistoryRequest(0, view.key, limit)) for view in views
    ]


def _tensors(views: Iterable[JudgedRank], missing: Missing, *, devices: bool) -> list[Step]:
    steps: list[Step] = []
    for view in views:
        if not view.pending:
            continue
        if view.state in _UNRESPONSIVE:
            missing["tensors", f"{view.state}, cannot respond"].add(view.rank)
        else:
            steps += (
                Step("tensors", (view.rank,), kind.for_capture(view.key, devices=devices))
                for kind in wire.declared()
                if issubclass(kind, wire.RankRequest) and kind.in_capture
            )
    return steps


class FilesWanted:
    """Files that the operator wants; the outcomes appear in the frame.

    Belongs to the source's thread.
    """

    def __init__(self, tracker: RequestTracker) -> None:
        self._tracker = tracker
        self._files = FileWorker()
        self._collectors: dict[str, CaptureCollector] = {}  # by kind of file, the last one
        self._frame = Frame(0, 0)
        self._shown: wire.Job | None = None

    @property
    def writings(self) -> tuple[Writing, ...]:
        """The last file of each kind."""
        return tuple(one.writing for one in self._collectors.values())

    def capture(self, path: Path, *, automatic: bool, settle_s: float, redact: bool) -> None:
        settle_ns = round(settle_s * 1e9)
        make = partial(CaptureCollector, automatic=automatic, settle_ns=settle_ns, redact=redact)
        self._collect("capture", path, make)

    def export(self, path: Path, name: str, *, over: bool, redact: bool) -> None:
        write = partial(write_collected, name=name)
        make = partial(
            CaptureCollector, kind="export", write=write, may_replace=over, redact=redact
        )
        self._collect("export", path, make)

    def _collect(self, kind: str, path: Path, make: Callable[..., CaptureCollector]) -> None:
        before = self._collectors.get(kind)
        if before is not None and not before.over:
            before.refuse(path)
            return
        now = time.monotonic_ns()
        self._collectors[kind] = make(self._tracker, self._files, self._frame, path=path, now=now)

    def finish_capture(self) -> None:
        for collector in self._collectors.values():
            collector.finish(time.monotonic_ns())

    @property
    def wants_frame(self) -> bool:
        """Whether a file waits for the next frame."""
        return any(one.wants_frame for one in self._collectors.values())

    def update(self, frame: Frame | None, now: int) -> None:
        """Advances what is under way."""
        self._files.update(now)
        if frame is not None and frame.job is not None:
            if self._shown is not None and not same_job(frame.job, self._shown):
                self._forget_files()
            self._shown = frame.job
        if frame is None:
            return
        self._frame = frame
        for collector in self._collectors.values():
            collector.update(frame, now)

    def _forget_files(self) -> None:
        """Drops finished files when another job is shown: they would seem to belong to it."""
        self._collectors = {kind: one for kind, one in self._collectors.items() if not one.over}

    def close(self) -> None:
        """Lets the last write end."""
        self._files.close()

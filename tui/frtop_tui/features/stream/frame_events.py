"""Changes between frames, as events of `frtop stream`."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator
from itertools import count
from typing import Any, Final

from frtop_probe import wire
from frtop_probe.ring.rank_ranges import fold
from frtop_tui.diagnosis.graph.wait_node import number_of
from frtop_tui.diagnosis.model import Frame, Verdict
from frtop_tui.features.stream.events import (
    GroupMoved,
    HealthChanged,
    HostChanged,
    JobShown,
    StateChanged,
    StreamEvent,
    VerdictChanged,
)
from frtop_tui.job.issuer_words import issuer_fields
from frtop_tui.job.job_activity import known_jobs
from frtop_tui.job.model import GroupView, Rank
from frtop_tui.job.naming import GroupKey, same_job
from frtop_tui.job.unix_times import Timeline, clock_errors
from frtop_tui.text.json_document import job_fields, verdict_fields

PROGRESS_NS: Final = 1_000_000_000
_GONE: Final = "gone"


def shown_job(frame: Frame) -> dict[str, Any] | None:
    """The job of a frame, as `frtop diagnose --json` has it."""
    return None if frame.job is None else job_fields(frame.job, known_jobs(frame))


class FrameEvents:
    """Yields the events that are new in each frame."""

    def __init__(
        self,
        timeline: Timeline,
        only: Collection[str],
        ranks: frozenset[int] | None = None,
    ) -> None:
        """`ranks` are those whose states are reported; None: all."""
        self._timeline = timeline
        self._only = frozenset(only)
        self._ranks = ranks
        self._job: wire.Job | None = None
        self._begun = False
        self._ids = count(1)
        self._verdict_ids: dict[Hashable, int] = {}
        self.forget()

    def forget(self) -> None:
        """Makes the next frame repeat the whole current state, because events were lost."""
        self._hosts: dict[str, tuple[str, str]] = {}
        self._states: dict[int, tuple[str, tuple[str, int, int]]] = {}
        self._last_ranks: object = None
        self._health: str | None = None
        self._verdicts: dict[Hashable, tuple[int, Hashable, dict[str, Any]]] = {}
        self._progress: dict[GroupKey, tuple[int, GroupView]] = {}

    def of(self, frame: Frame) -> Iterator[StreamEvent]:
        """The events between the last frame and this one, causes before effects."""
        at_s = self._timeline.unix_s(frame.now_ns)
        if not self._begun or not same_job(frame.job, self._job):
            if self._begun:
                self.forget()
                yield JobShown(at_s=at_s, job=shown_job(frame))
            self._begun = True
        self._job = frame.job
        if "states" in self._only:
            yield from self._host_events(frame, at_s)
            yield from self._state_events(frame, at_s)
        if "progress" in self._only:
            yield from self._progress_events(frame, at_s)
        if "verdicts" in self._only:
            yield from self._verdict_events(frame, at_s)

    def _host_events(self, frame: Frame, at_s: float) -> Iterator[StreamEvent]:
        errors = clock_errors(frame)
        now = {host.name: (host.state, str(host.problem or "")) for host in frame.hosts}
        for name, known in now.items():
            was = self._hosts.get(name)
            if was != known:
                yield _host(at_s, name, known, was, errors.get(name))
        for name in self._hosts.keys() - now.keys():
            yield _host(at_s, name, (_GONE, ""), self._hosts[name], None)
        self._hosts = dict(now)

    def _state_events(self, frame: Frame, at_s: float) -> Iterator[StreamEvent]:
        if frame.ranks is self._last_ranks:
            return
        self._last_ranks = frame.ranks
        for rank, view in frame.ranks.items():
            if self._ranks is not None and rank not in self._ranks:
                continue
            process = (view.host, view.identity.pid, view.identity.start_ticks)
            was = self._states.get(rank)
            if was == (view.state, process):
                continue
            self._states[rank] = (view.state, process)
            since_ns = view.state_since_ns or None
            yield StateChanged(
                at_s=at_s,
                rank=rank,
                host=view.host,
                pid=view.identity.pid,
                state=view.state,
                was=was[0] if was else None,
                since_s=since_ns and self._timeline.unix_s(since_ns),
                step=view.status.step if view.status is not None else None,
                blocked_on=self._blocked_on(view),
            )
        for rank in self._states.keys() - frame.ranks.keys():
            state, (host, pid, _) = self._states.pop(rank)
            yield StateChanged(at_s=at_s, rank=rank, host=host, pid=pid, state=_GONE, was=state,
                               since_s=None, step=None, blocked_on=None)  # fmt: skip

    def _blocked_on(self, view: Rank) -> dict[str, Any] | None:
        op = view.blocked_on
        if op is None:
            return None
        group = view.groups.get(op.group)
        shown = op.number if op.p2p or op.pseudo else number_of(op, group)
        return {
            "kind": op.signature.kind if op.signature is not None else "",
            "group": group.name if group is not None else "",
            "number": shown or None,
            "issued_s": self._timeline.of_rank(view, op.issued_ns) if op.issued_ns else None,
            **issuer_fields(op.issuer),
        }

    def _progress_events(self, frame: Frame, at_s: float) -> Iterator[StreamEvent]:
        for group in frame.groups:
            shown_ns, was = self._progress.get(group.key, (frame.now_ns - PROGRESS_NS, None))
            if was == group or frame.now_ns - shown_ns < PROGRESS_NS:
                continue
            self._progress[group.key] = (frame.now_ns, group)
            yield GroupMoved(
                at_s=at_s,
                group=group.key.name,
                description=group.description,
                ranks=group.key.ranks,
                epoch=group.key.epoch,
                number=group.number,
                exact=group.exact,
                late=fold(group.late),
                waiting=fold(group.waiting),
                issued_s=self._timeline.unix_s(group.issued_ns) if group.issued_ns else None,
            )
        there = {group.key for group in frame.groups}
        self._progress = {key: one for key, one in self._progress.items() if key in there}

    def _verdict_events(self, frame: Frame, at_s: float) -> Iterator[StreamEvent]:
        if frame.health != self._health:
            yield HealthChanged(
                at_s=at_s,
                health=frame.health,
                was=self._health,
                since_s=self._timeline.unix_s(frame.since_ns) if frame.since_ns else None,
                reporting=frame.coverage.reporting,
                expected=frame.coverage.expected,
            )
            self._health = frame.health
        descriptions = {group.key: group.description for group in frame.groups}
        now: dict[Hashable, tuple[int, Hashable, dict[str, Any]]] = {}
        for verdict in frame.verdicts:
            key = _identity(verdict)
            number = self._verdict_ids.get(key) or next(self._ids)
            fields = verdict_fields(verdict, descriptions)
            variant = (verdict.confidence, verdict.progress, verdict.why.cause)
            was = self._verdicts.get(key)
            now[key] = (number, variant, fields)
            if was is None or was[1] != variant:
                since_s = self._timeline.unix_s(verdict.since_ns) if verdict.since_ns else None
                yield VerdictChanged(at_s=at_s, id=number, phase="changed" if was else "begun",
                                     since_s=since_s, verdict=fields)  # fmt: skip
        for key, (number, _, fields) in self._verdicts.items():
            if key not in now:
                yield VerdictChanged(at_s=at_s, id=number, phase="over", since_s=None,
                                     verdict=fields)  # fmt: skip
        self._verdicts = now
        self._verdict_ids = {key: one[0] for key, one in now.items()}  # a later one gets a new id


def _identity(verdict: Verdict) -> Hashable:
    return (verdict.kind, verdict.culprits, verdict.parties, verdict.group, verdict.op)


def _host(
    at_s: float,
    name: str,
    known: tuple[str, str],
    was: tuple[str, str] | None,
    error_s: float | None,
) -> HostChanged:
    return HostChanged(at_s=at_s, host=name, state=known[0], was=was[0] if was else None,
                       problem=known[1], clock_error_s=error_s)  # fmt: skip

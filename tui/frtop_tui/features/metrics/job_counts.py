"""Sums that `frtop metrics` counts over the frames of one job; they only grow.

A frame has current values only, and forgets ranks and groups that are gone; so the growth
of each value is added up here. Labels are bounded: a program may create groups without end.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from frtop_probe import wire
from frtop_probe.statistics.op_bytes import tensor_bytes
from frtop_tui.diagnosis.model import Frame
from frtop_tui.job.model import Rank
from frtop_tui.job.naming import group_label, printable, same_job, shortened

GROUPS: Final = 32
"""The first groups seen get their own label, up to this many; the rest are `other`."""
MAX_LABEL: Final = 80
MOST_KNOWN: Final = 256
"""How many destroyed groups of a rank are remembered."""

GroupLabels = tuple[str, str]
"""Name and folded ranks of a group, as labels."""
Process = tuple[str, int, int]
OTHER: Final[GroupLabels] = ("other", "")
NO_GROUP: Final[GroupLabels] = ("none", "")


def label(text: str) -> str:
    """A safe label value: names come from programs that may be hostile."""
    return printable(text[:MAX_LABEL])


@dataclass(slots=True)
class StepTime:
    """The last step of one rank; seconds are None until two steps were seen."""

    step: int
    begun_ns: int
    seconds: float | None = None


@dataclass
class JobCounts:
    """Sums over one job; each job has its own."""

    job: wire.Job | None = None
    job_began_s: float = 0.0  # Unix time from which ops are counted
    counted_from_s: float = 0.0  # Unix time from which the rest is counted
    ops: Counter[GroupLabels] = field(default_factory=Counter)
    rank_ops: Counter[int] = field(default_factory=Counter)
    waited_s: dict[GroupLabels, float] = field(default_factory=lambda: defaultdict(float))
    rank_waited_s: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    bytes: Counter[GroupLabels] = field(default_factory=Counter)
    unsized: int = 0
    lost: Counter[str] = field(default_factory=Counter)
    steps: dict[int, StepTime] = field(default_factory=dict)
    _groups: set[GroupLabels] = field(default_factory=set)
    _progress: dict[Process, dict[int, int]] = field(default_factory=dict)
    _losses: dict[tuple[object, str], int] = field(default_factory=dict)
    _last_ns: int = 0

    @classmethod
    def begin(cls, frame: Frame) -> JobCounts:
        """Empty sums for the job of this frame."""
        wall_s = frame.wall_ns / 1e9
        return cls(frame.job, wall_s - frame.up_s, wall_s)

    def are_of(self, frame: Frame) -> bool:
        """Whether these sums belong to the frame's job, or the frame has no job any more."""
        return frame.job is None or same_job(frame.job, self.job)

    def labels_of(self, group: wire.Group | None) -> GroupLabels:
        """The labels of a group; a group that came too late gets those of the rest."""
        if group is None:
            return NO_GROUP
        name = label(group_label(group.name, group.description))
        labels = (name, label(shortened(group.ranks)))
        if labels not in self._groups:
            if len(self._groups) >= GROUPS:
                return OTHER
            self._groups.add(labels)
        return labels

    def update(self, frame: Frame) -> None:
        """Adds the changes since the last frame."""
        self.job = frame.job or self.job  # its nonce may have become known
        # While this machine slept, frtop saw no rank wait.
        passed_s = min(5.0, max(0.0, (frame.now_ns - self._last_ns) / 1e9))
        passed_s = passed_s if self._last_ns else 0.0
        self._last_ns = frame.now_ns
        for view in frame.ranks.values():
            self._add_rank(view, passed_s)
        for host in frame.hosts:
            self._add_loss(host.name, "updates", host.lost_updates)

    def add_ops(self, view: Rank, ops: Iterable[wire.Op], lost: int) -> None:
        """Adds the bytes of ops that were issued; `lost` ops were missed."""
        for op in ops:
            signature = op.signature
            size = tensor_bytes(signature.inputs) if signature is not None else None
            if size is None:
                self.unsized += 1
            else:
                self.bytes[self.labels_of(view.groups.get(op.group))] += size
        self.lost["ops"] += lost

    def _add_rank(self, view: Rank, passed_s: float) -> None:
        process = (view.host, view.identity.pid, view.identity.start_ticks)
        known = self._progress.setdefault(process, {})
        if len(known) > MOST_KNOWN + len(view.group_progress):
            for number in known.keys() - view.group_progress.keys():
                del known[number]
        for number, progress in view.group_progress.items():
            issued = progress.number + progress.p2p
            grown = issued - known.get(number, 0)
            if grown > 0:
                known[number] = issued
                self.ops[self.labels_of(view.groups.get(number))] += grown
                self.rank_ops[view.rank] += grown
        if view.state == "blocked" and view.blocked_on is not None:
            labels = self.labels_of(view.groups.get(view.blocked_on.group))
            self.waited_s[labels] += passed_s
            self.rank_waited_s[view.rank] += passed_s
        if (status := view.status) is None:
            return
        self._add_loss(process, "pending", status.pending_lost)
        self._add_loss(process, "sizes", status.side_lost)
        self._add_loss(process, "hook_errors", status.hook_errors)
        self._add_step(view.rank, status.step, status.step_ns)

    def _add_step(self, rank: int, step: int, begun_ns: int) -> None:
        known = self.steps.get(rank)
        if step and (known is None or known.step > step):
            self.steps[rank] = StepTime(step, begun_ns)
        elif known is not None and step > known.step:
            seconds = max(0, begun_ns - known.begun_ns) / 1e9 / (step - known.step)
            self.steps[rank] = StepTime(step, begun_ns, seconds)

    def _add_loss(self, whose: object, what: str, count: int) -> None:
        grown = count - self._losses.get((whose, what), 0)
        if grown > 0:
            self._losses[whose, what] = count
            self.lost[what] += grown

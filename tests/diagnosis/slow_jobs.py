"""Jobs with stragglers by hand: what ranks do in steps, as the statistics of their ops.

    job = SteppingJob(4)
    job.run(100, late={2: 30.0})
    statistics = job.statistics()

A small model of what happens: a rank computes for some ms, issues a collective, and all who are in
it leave it when the last one has come, and its data has been moved. Times are in ms.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from frtop_probe import wire
from frtop_probe.ring.rank_ranges import fold
from frtop_probe.statistics.samples import is_chosen
from frtop_tui.job.model import BaseFrame, GroupView, ObservedFrame, ObservedRank
from frtop_tui.job.naming import GroupKey
from frtop_tui.job.statistics import JobStatistics, SampledGroup, SampledOp, StepSplit

MS = 1_000_000
BEGUN_NS = 10_100_000_000_000
SITE = wire.Site("/home/me/train.py", 20, "train")

Milliseconds = float
Work = Callable[[int, int], Milliseconds]
"""By rank and step."""


@dataclass
class Meeting:
    """One collective of each step: in which groups, after how much work, how long data moves."""

    groups: tuple[tuple[int, ...], ...]
    work: Work
    transfer: Callable[[tuple[int, ...]], Milliseconds] = lambda _: 0.5
    waits: bool = True  # False: asynchronous, waited for in the next meeting that waits
    seen: bool = True  # False: it waits in C++, where nobody sees it
    kind: str = "all_reduce"
    site: wire.Site = SITE
    name: str = "dp"
    bytes: int = 1 << 20


@dataclass
class SteppingJob:
    """Ranks that step together. `noise` is a share of all work."""

    world: int = 4
    noise: float = 0.02
    seed: int = 1
    error_ns: int | None = 0
    meetings: list[Meeting] = field(default_factory=list)
    ended: dict[int, float] = field(init=False)
    blocked: defaultdict[int, float] = field(init=False)
    pending: defaultdict[int, list[tuple[float, float]]] = field(init=False)
    data: Mapping[int, Milliseconds] = field(default_factory=dict)
    stride: int = 1
    steps: dict[int, list[StepSplit]] = field(init=False)
    ops: dict[tuple[str, tuple[int, ...]], list[SampledOp]] = field(init=False)

    def __post_init__(self) -> None:
        self.ended = dict.fromkeys(range(self.world), BEGUN_NS / MS)
        self.blocked, self.pending = defaultdict(float), defaultdict(list)
        self.steps = {rank: [] for rank in range(self.world)}
        self.ops = {}
        self._random = random.Random(self.seed)
        self._step = 0

    @property
    def everybody(self) -> tuple[int, ...]:
        return tuple(range(self.world))

    def run(self, steps: int, *, late: Mapping[int, Milliseconds] | None = None) -> SteppingJob:
        """Runs steps in which the ranks in `late` have more work before the first meeting."""
        for _ in range(steps):
            begun = dict(self.ended)
            self.blocked.clear()
            self.pending.clear()
            for place, meeting in enumerate(self.meetings):
                self._meet(meeting, (late or {}) if not place else {})
            for rank in self.everybody:
                self.steps[rank].append(
                    StepSplit(
                        self._step,
                        round(self.ended[rank] * MS),
                        round((self.ended[rank] - begun[rank]) * MS),
                        round(self.data[rank] * MS) if rank in self.data else None,
                        round(self.blocked[rank] * MS),
                        round(self._pending_ms(rank) * MS),
                    )
                )
            self._step += 1
        return self

    def _meet(self, meeting: Meeting, late: Mapping[int, Milliseconds]) -> None:
        for group in meeting.groups:
            arrivals = {}
            for rank in group:
                work = meeting.work(rank, self._step) * (1 + self._random.gauss(0, self.noise))
                arrivals[rank] = self.ended[rank] + max(0.0, work) + late.get(rank, 0.0)
            end = max(arrivals.values()) + meeting.transfer(group)
            ops = self.ops.setdefault((meeting.name, group), [])
            ops.append(
                SampledOp(
                    len(ops) + 1,
                    {rank: round(at * MS) for rank, at in arrivals.items()},
                    complete=True,
                    kind=meeting.kind,
                    site=meeting.site,
                    bytes=meeting.bytes,
                    ended_ns=round(end * MS),
                    error_ns=self.error_ns,
                    transfer_ns=round(meeting.transfer(group) * MS),
                )
            )
            for rank in group:
                self.pending[rank].append((arrivals[rank], end))
                if meeting.waits:
                    self.blocked[rank] += meeting.seen * (end - arrivals[rank])
                    self.ended[rank] = end
                else:
                    self.ended[rank] = arrivals[rank]

    def _pending_ms(self, rank: int) -> Milliseconds:
        """How long any op of this step was pending before the step's end."""
        total, until = 0.0, 0.0
        for begin, over in self.pending[rank]:  # by their begins
            end = min(over, self.ended[rank])
            total += max(0.0, end - max(begin, until))
            until = max(until, end)
        return total

    def statistics(self, *, steps: bool = True) -> JobStatistics:
        """What agents tell of it, without counts of calls."""
        groups = [
            SampledGroup(
                GroupKey(f"{name} {group}", fold(group)),
                group,
                tuple(op for op in ops if is_chosen(op.number, self.stride)),
                self.stride,
            )
            for (name, group), ops in self.ops.items()
        ]
        return JobStatistics(
            BEGUN_NS,
            round(max(self.ended.values()) * MS),
            BEGUN_NS,
            self.everybody,
            groups=tuple(groups),
            steps={rank: tuple(those) for rank, those in self.steps.items()} if steps else {},
            clock_error_ns=self.error_ns,
        )

    def frame(
        self,
        *,
        p2p: Sequence[tuple[int, ...]] = (),
        device: bool = False,
        hosts: Mapping[int, str] | None = None,
    ) -> BaseFrame:
        """Its ranks and groups; `p2p` are groups in which ranks send and receive, too."""
        backend = "nccl" if device else "gloo"
        views = tuple(
            GroupView(GroupKey(f"{name} {group}", fold(group)), name, backend, group, 9, None)
            for name, group in self.ops
        )
        ranks = {}
        for rank in self.everybody:
            theirs = [one for one in p2p if rank in one]
            groups = {
                n: wire.Group(n, f"pp {n}", "", "", fold(one)) for n, one in enumerate(theirs)
            }
            identity = wire.Identity(1000 + rank, 1, rank, 0, wire.Job("node0", 1, self.world))
            ranks[rank] = ObservedRank(
                rank, (hosts or {}).get(rank, "node0"), rank, identity, "moving", 0, 0, 0,
                groups=groups,
                group_progress={n: wire.GroupProgress(n, 0, 9, 0) for n in groups},
            )  # fmt: skip
        return ObservedFrame(now_ns=0, wall_ns=0, groups=views, ranks=ranks)


def over_a_slow_link() -> SteppingJob:
    """Ops of the groups of rank 1 take 40 ms, those of the others 8 ms."""
    job = SteppingJob(4)
    pairs, across = ((0, 1), (2, 3)), ((0, 2), (1, 3))
    for line, (groups, name) in enumerate(((pairs, "tp"), (across, "dp")), 20):
        site = wire.Site(SITE.file, line, SITE.function)
        job.meetings.append(Meeting(groups, lambda rank, step: 20.0, name=name, site=site))
    for meeting in job.meetings:
        meeting.transfer = lambda group: 40.0 if 1 in group else 8.0
    return job.run(250)


def data_parallel(world: int = 4, work: Milliseconds = 200.0, **fields: object) -> SteppingJob:
    """All ranks reduce one gradient in each step."""
    job = SteppingJob(world, **fields)  # type: ignore[arg-type]
    job.meetings = [Meeting((job.everybody,), lambda rank, step: work)]
    return job

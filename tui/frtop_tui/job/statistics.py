"""What the ranks of a job did within a window of time: the types of the statistics.

`frtop_tui.statistics` builds them from the agents' answers. Points in time named `*_ns` are on the
operator's clock. None means unknown.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from frtop_probe import wire
from frtop_probe.wire.values import Real
from frtop_tui.job.naming import GroupKey


class CallRow(Struct, frozen=True, gc=False):
    """Ops of one kind and size class from one line, in one group or in groups that are alike.

    Durations run from issue to end, and cover only the `timed` ops, whose end is exact. `skew_ns`
    is the median time from the first to the last arrival of the sampled ops, `mean_skew_ns` the
    mean of its groups' medians, `transfer_ns` the time from the last arrival to the last end, on
    which bandwidths (bytes per second) are based. `last` lists the ranks that came last, each with
    its number of `sampled` ops.

    A row of `JobStatistics.varying` has several classes of size; `sizes` are the mean bytes of an
    op of the smallest and of the largest one. The rows of these classes are `in_varying`.
    """

    kind: str
    groups: tuple[GroupKey, ...]
    site: wire.Site | None
    size: int  # upper bound of an op's bytes, a power of two; 0: no data, or unknown
    ranks: tuple[int, ...]
    p2p: bool = False
    on_device: bool = False
    count: int = 0
    bytes: int = 0
    rate: Real = 0.0  # ops per second, all ranks together
    timed: int = 0
    p50_ns: int | None = None
    p95_ns: int | None = None
    max_ns: int | None = None
    total_ns: int = 0  # sum of the durations of timed ops
    waited_ns: int = 0
    late: int = 0
    pending: int = 0
    sampled: int = 0
    skew_ns: int | None = None
    transfer_ns: int | None = None
    algorithm_bandwidth: Real | None = None
    bus_bandwidth: Real | None = None
    last: tuple[tuple[int, int], ...] = ()  # rank and count, the most often first
    mean_skew_ns: int | None = None
    members: int = 0  # ranks of one of the groups; 0: unknown
    sizes: tuple[int, int] | None = None
    in_varying: bool = False


class ModuleRow(Struct, frozen=True, gc=False):
    """Ops of one kind from one issuer on these ranks: how many, and their bytes.

    Those of a profile have a time from issue to end, too, an upper bound unless `exact`.
    """

    issuer: wire.Issuer
    kind: str
    ranks: tuple[int, ...]
    count: int
    bytes: int
    ns: int = 0
    exact: bool = True


class SampledOp(Struct, frozen=True, gc=False):
    """One collective across the ranks of its group: when each of them issued it.

    `arrivals` has the known ranks; the op is `complete` if these are all members. `ended_ns` is the
    last exact end, None if unknown; `transfer_ns` is the time from the last arrival to it, if all
    ends are known. Times of different hosts are off by up to `error_ns` (None: not measured).
    """

    number: int
    arrivals: Mapping[int, int]
    complete: bool
    kind: str = ""
    site: wire.Site | None = None
    bytes: int = 0
    ended_ns: int | None = None
    error_ns: int | None = None
    transfer_ns: int | None = None

    @property
    def first_ns(self) -> int:
        return min(self.arrivals.values())

    @property
    def last_ns(self) -> int:
        return max(self.arrivals.values())

    @property
    def last_rank(self) -> int:
        return max(self.arrivals, key=self.arrivals.__getitem__)

    @property
    def skew_ns(self) -> int:
        """The time from the first to the last arrival."""
        return self.last_ns - self.first_ns


class SampledGroup(Struct, frozen=True):
    """The sampled ops of one group, oldest first."""

    group: GroupKey
    members: tuple[int, ...]
    arrivals: tuple[SampledOp, ...]
    stride: int = 1  # 1 in `stride` ops was sampled


class StepSplit(Struct, frozen=True):
    """One training step of one rank: durations in ns, None if not recorded.

    Communication took between `blocked_ns` and `pending_ns` of it. `bubble_ns` is the part of
    `blocked_ns` in which it waited for messages, as a stage of a pipeline does.
    """

    number: int
    end_ns: int
    took_ns: int
    data_ns: int | None = None
    blocked_ns: int = 0
    pending_ns: int = 0
    forward_ns: int | None = None
    backward_ns: int | None = None
    optimizer_ns: int | None = None
    samples: int | None = None
    bubble_ns: int | None = None


class JobStatistics(Struct, frozen=True):
    """All statistics of the ranks that answered.

    From `from_ns` on, every op of all of them is counted: rings forget older ones. `missing` are
    ranks that did not answer, or that cannot be read.
    """

    since_ns: int
    until_ns: int
    from_ns: int
    ranks: tuple[int, ...] = ()
    missing: tuple[int, ...] = ()
    calls: tuple[CallRow, ...] = ()  # each of one class of size
    groups: tuple[SampledGroup, ...] = ()
    steps: Mapping[int, tuple[StepSplit, ...]] = field(
        default_factory=dict
    )  # by rank, oldest first
    clock_error_ns: int | None = None  # the largest error between two hosts of the job; 0: one host
    lost: int = 0
    notes: tuple[str, ...] = ()
    modules: tuple[ModuleRow, ...] = ()
    varying: tuple[CallRow, ...] = ()  # of lines whose sizes vary
    with_calls: bool = True  # whether `calls` and `modules` were asked for

    @property
    def rows(self) -> list[CallRow]:
        """The calls as tables show them: a line whose sizes vary gets one row."""
        return [*(row for row in self.calls if not row.in_varying), *self.varying]

    @property
    def seconds(self) -> float:
        """The length of the window."""
        return (self.until_ns - self.since_ns) / 1e9

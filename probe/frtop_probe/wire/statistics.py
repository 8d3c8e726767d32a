"""What ranks did within a window of time: calls, sampled ops, steps.

An agent computes statistics on request, where the rings are. Sums and histograms of ranks and hosts
can be added up. Ops are sampled by their number alone, so ranks and hosts report the same ops
without coordination (`frtop_probe.statistics.samples`).
"""

from __future__ import annotations

from typing import Final

from frtop_probe.wire.histories import HistoryColumn
from frtop_probe.wire.values import Int, Value

OCTAVE: Final = 8
"""Buckets of durations per doubling: a bucket's middle is within 4.5 % of what is in it."""


class CallColumns(Value, frozen=True):
    """Ops that one rank issued within the window, by line, group, kind and size: rows, by field.

    `site` is an index into `StatisticsResponse.sites` from 1; 0 is none. `size_class` is the bit
    length of an op's bytes (0: no data, or unknown). `timed` ops are those
    whose end is exact. Of the others, `late` have only an upper bound for their end, and `pending`
    have not ended. `waited_ns` is how long threads waited for the ops, as far as seen.

    `durations` counts the timed ops by how long they took: for each bucket from `first_bucket` on,
    a count for each row, in `width` bytes (1, 2 or 4), little-endian. Bucket `b` begins at
    `2 ** (b / OCTAVE)` ns.
    """

    kind: tuple[str, ...]
    group: tuple[Int, ...]
    site: tuple[Int, ...]
    size_class: tuple[Int, ...]
    p2p: tuple[bool, ...]
    on_device: tuple[bool, ...]
    count: tuple[Int, ...]
    total_bytes: tuple[Int, ...]
    timed: tuple[Int, ...]
    timed_ns: tuple[Int, ...]
    max_ns: tuple[Int, ...]
    late: tuple[Int, ...]
    pending: tuple[Int, ...]
    waited_ns: tuple[Int, ...]
    first_bucket: Int
    width: Int
    durations: bytes


class ModuleStatistics(Value, frozen=True):
    """Ops of one kind that one issuer issued within the window, and their bytes.

    `issuer` is an index into `StatisticsResponse.issuers` from 1.
    """

    issuer: Int
    kind: str
    count: Int = 0
    bytes: Int = 0


class SampledOps(Value, frozen=True):
    """Collectives of one group that a rank issued, by field, oldest first.

    One in `stride`, a power of two, is reported. `call` is an index into `RankStatistics.rows`
    from 1. `took_ns` is 0 while pending, negative where the end is an upper bound, or unknown (-1).
    """

    group: Int
    stride: Int
    number: HistoryColumn
    issued_ns: HistoryColumn
    took_ns: HistoryColumn
    bytes: HistoryColumn
    call: HistoryColumn
    count: Int = 0


class StepTimes(Value, frozen=True):
    """Training steps of a rank that ended within the window, by field, oldest first.

    A step lasts from the end of the previous one to its own end. For each step: `took_ns`, then how
    long the rank was inside DataLoader fetches, how long communication certainly blocked the thread
    that steps (`blocked_ns`: calls and waits that do not return before the op is over), how long
    any op was pending at all (`pending_ns`; exposed communication is between the two), and forward,
    backward and optimizer where they are recorded (else 0, see `phases`). `samples` is what the job
    reported, 0 for nothing. `bubble_ns` is how long that thread waited for messages of other ranks.
    """

    number: HistoryColumn
    end_ns: HistoryColumn
    took_ns: HistoryColumn
    data_ns: HistoryColumn
    blocked_ns: HistoryColumn
    pending_ns: HistoryColumn
    forward_ns: HistoryColumn
    backward_ns: HistoryColumn
    optimizer_ns: HistoryColumn
    samples: HistoryColumn
    count: Int = 0
    phases: bool = False
    fetches: bool = False  # whether fetches are recorded at all
    bubble_ns: HistoryColumn = HistoryColumn(0)
    bubbles: bool = False  # whether there are messages, and waits for most of them would be seen


class RankStatistics(Value, frozen=True):
    """One rank's part. From `from_ns` on every op is counted (the ring has lost older ones).

    `lost` ops within the window cannot be read. `note` says where the ops come from and what is
    unknown about them; "": a recorder's ring.
    """

    key: Int
    from_ns: Int
    rows: CallColumns | None = None  # None: there are none
    samples: tuple[SampledOps, ...] = ()
    steps: StepTimes | None = None
    lost: Int = 0
    note: str = ""
    modules: tuple[ModuleStatistics, ...] = ()  # with the rows, where modules are recorded

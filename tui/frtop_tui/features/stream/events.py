"""The events of `frtop stream`: their names and fields. Fields are only appended.

Each event is a map with its name in `event`. Fields named `*_s` are seconds; points in time are
Unix time by the clock of the host where frtop runs. None means unknown.
"""

from __future__ import annotations

from typing import Any, Final, Literal

from msgspec import Struct

SCHEMA: Final = 1
"""Increases when a field or event is removed or changes meaning, not when one is added."""


class StreamEvent(Struct, frozen=True, tag_field="event", kw_only=True):
    at_s: float  # when frtop saw it


class StreamHead(StreamEvent, frozen=True, tag="stream"):
    """The first event. `job` is as in `frtop diagnose --json`."""

    schema: int
    version: str  # of frtop
    source: str  # "live", "capture", "black box", "flight recorder", ...
    job: dict[str, Any] | None
    only: tuple[str, ...]
    ranks: str  # whose states and ops are reported, folded; "" means all


class JobShown(StreamEvent, frozen=True, tag="job"):
    """From here on another job is followed: earlier events are about the previous one."""

    job: dict[str, Any] | None


class HostChanged(StreamEvent, frozen=True, tag="host"):
    """A host reports, or no longer does. Comes with `states`."""

    host: str
    state: str  # "connecting", "reporting", "silent", "failed", "gone": no longer among the hosts
    was: str | None  # None: this is its first event
    problem: str
    clock_error_s: float | None  # how far the times of its ops may be off


class StateChanged(StreamEvent, frozen=True, tag="state"):
    """A rank changes its state (see the glossary). Comes with `states`."""

    rank: int
    host: str
    pid: int
    state: str  # or "gone": no longer among the ranks
    was: str | None  # None: this is its first event
    since_s: float | None
    step: int | None
    blocked_on: dict[str, Any] | None  # `kind`, `group`, `number`, `issued_s`,
    # and, if modules are recorded, `phase`, `module`, `module_part`


class GroupMoved(StreamEvent, frozen=True, tag="progress"):
    """How far a process group is; at most once a second for each. Comes with `progress`."""

    group: str
    description: str
    ranks: str  # folded
    epoch: int
    number: int  # the furthest collective that a rank has issued
    exact: bool  # whether numbers can be compared between ranks
    late: str  # ranks that have not issued it, folded
    waiting: str  # ranks that are blocked in it, folded
    issued_s: float | None  # when a rank last issued an op


class HealthChanged(StreamEvent, frozen=True, tag="health"):
    """The job's health. Comes with `verdicts`."""

    health: str
    was: str | None
    since_s: float | None
    reporting: int  # ranks
    expected: int


class VerdictChanged(StreamEvent, frozen=True, tag="verdict"):
    """A verdict begins, changes or ends. `verdict` is as in `frtop diagnose --json`.

    A verdict keeps its `id` while its kind, culprits, parties, group and op stay the same. A
    change in its confidence, progress or cause is reported as `changed`.
    """

    id: int
    phase: Literal["begun", "changed", "over"]
    since_s: float | None
    verdict: dict[str, Any]


class OpIssued(StreamEvent, frozen=True, tag="op_issued"):
    """A rank issued an op. `rank` and `sequence` name it until its rank's process ends."""

    rank: int
    host: str
    sequence: int
    group: str
    group_ranks: str  # folded
    number: int | None  # among its group's collectives, or among its messages
    exact: bool  # whether that number can be compared between ranks
    kind: str
    p2p: bool
    sync: bool
    reduce: str | None
    root: int | None
    peer: int | None
    dtypes: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]  # of the first 16 inputs, or outputs if it has no inputs
    bytes_in: int | None
    bytes_out: int | None
    site: str  # FILE:LINE (FUNCTION), "" unknown
    issued_s: float
    dated: bool  # False: issued at `issued_s` or earlier
    error_s: float | None  # how far `issued_s` may be off from other hosts' times
    phase: str = ""  # forward, backward, optimizer, recompute, outside; "" not recorded
    module: str = ""  # class of the outermost module, and the path below it
    module_part: str = ""  # a bucket of DDP, a compiled graph


class OpEnded(StreamEvent, frozen=True, tag="op_ended"):
    """An op has ended. `ended_s` is None if it is not known when."""

    rank: int
    host: str
    sequence: int
    group: str
    number: int | None
    kind: str
    ended_s: float | None
    took_s: float | None
    late: bool  # True: ended at `ended_s` or earlier
    tracked: bool  # False: it ran on a device, and when it completed there is not known
    failed: bool
    error_s: float | None


class GaugesRead(StreamEvent, frozen=True, tag="gauges"):
    """Figures of a host, or of something on it. Comes with `gauges`, at most once an interval.

    From a file, readings of the last ten minutes come one after the other, and before them means of
    each minute, as far as the file has them.
    """

    host: str
    read_s: float  # when they were read, by that host's clock
    kind: str  # "host", "cgroup", "disk", "nic", "infiniband", "gpu", "rank"
    name: str  # which of them; "" for the host and for a rank
    ranks: str  # that use it, folded; "" if that is not known
    values: dict[str, int]  # as named in docs/features/gauges.md, in the same units on the wire


class SkewSeen(StreamEvent, frozen=True, tag="skew"):
    """How far apart the ranks of a group arrive at its collectives. Comes with `gauges`."""

    group: str
    group_ranks: str  # folded
    sampled: int  # ops of the last minute, of a file: of all that it has
    median_s: float  # from the first to the last arrival
    max_s: float
    error_s: float | None  # how much of it the clocks of hosts may explain
    last_rank: int  # that arrived last most often
    last_count: int  # at how many of the sampled ops


class StepParts(StreamEvent, frozen=True, tag="step_parts"):
    """Medians of the parts of a step, over the same time as skew. Comes with `gauges`.

    None: not recorded. Communication took between `communication_least_s` and
    `communication_most_s` of a step; no op was pending for `own_s`.
    """

    rank: int | None  # None: of all ranks; else one of those with the most own time
    steps: int
    all_s: float
    own_s: float
    communication_least_s: float
    communication_most_s: float
    data_s: float | None
    forward_s: float | None
    backward_s: float | None
    optimizer_s: float | None


class EventsLost(StreamEvent, frozen=True, tag="lost"):
    """Events that were not written. The current hosts, states and verdicts follow.

    `why` is `reader` (the reader was too slow), `history` (`rank` issued ops faster
    than they were asked for, or its agent did not answer) or `frtop` (it could not keep up itself).
    """

    why: Literal["reader", "history", "frtop"]
    counts: dict[str, int]  # by event
    rank: int | None = None
    text: str = ""


class StreamEnd(StreamEvent, frozen=True, tag="end"):
    """The last event of a recorded job. A live stream goes on until its reader leaves."""

    reason: Literal["recorded"]


PAGE: Final = ("Events of `frtop stream`", StreamEvent.__subclasses__())
"""Read by the generator of the field reference."""

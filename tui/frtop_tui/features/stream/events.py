"""The events of `frtop stream`: their names and fields. Fields are only appended.

Each is a map with its name in `event`. Fields named `*_s` are seconds: those that say *when* are
Unix time by the clock of the host where frtop runs. None means unknown.
"""

from __future__ import annotations

from typing import Any, Final, Literal

from msgspec import Struct

SCHEMA: Final = 1
"""Rises when a field or an event is removed or changes its meaning, not when one is added."""


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
    """Another job is followed from here on: earlier events are about the former one."""

    job: dict[str, Any] | None


class HostChanged(StreamEvent, frozen=True, tag="host"):
    """A host reports, or no longer does. Comes with `states`."""

    host: str
    state: str  # "connecting", "reporting", "silent", "failed", "gone": no longer among the hosts
    was: str | None  # None: the first that is said of it
    problem: str
    clock_error_s: float | None  # how far times of its ops may be off


class StateChanged(StreamEvent, frozen=True, tag="state"):
    """A rank is in another state (the words of the glossary). Comes with `states`."""

    rank: int
    host: str
    pid: int
    state: str  # or "gone": no longer among the ranks
    was: str | None  # None: the first that is said of it
    since_s: float | None
    step: int | None
    blocked_on: dict[str, Any] | None  # `kind`, `group`, `number`, `issued_s`,
    # where modules are recorded also `phase`, `module`, `module_part`


class GroupMoved(StreamEvent, frozen=True, tag="progress"):
    """How far a process group is; at most once a second for each. Comes with `progress`."""

    group: str
    description: str
    ranks: str  # folded
    epoch: int
    number: int  # the furthest collective that anybody issued
    exact: bool  # whether numbers can be compared between ranks
    late: str  # ranks that have not issued it, folded
    waiting: str  # ranks that are blocked in it, folded
    issued_s: float | None  # when anybody last issued an op


class HealthChanged(StreamEvent, frozen=True, tag="health"):
    """The job's health. Comes with `verdicts`."""

    health: str
    was: str | None
    since_s: float | None
    reporting: int  # ranks
    expected: int


class VerdictChanged(StreamEvent, frozen=True, tag="verdict"):
    """A verdict comes, changes or goes. `verdict` is as in `frtop diagnose --json`.

    It stays the same verdict, with the same `id`, while its kind, culprits, parties, group and op
    do; it has changed when its confidence, progress or cause has.
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
    number: int | None  # among the collectives of its group; of messages, among those
    exact: bool  # whether that number can be compared between ranks
    kind: str
    p2p: bool
    sync: bool
    reduce: str | None
    root: int | None
    peer: int | None
    dtypes: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]  # of its inputs, else of its outputs; the first 16
    bytes_in: int | None
    bytes_out: int | None
    site: str  # FILE:LINE (FUNCTION), "" unknown
    issued_s: float
    dated: bool  # False: issued then or before
    error_s: float | None  # how far `issued_s` may be off from other hosts' times
    phase: str = ""  # forward, backward, optimizer, recompute, outside; "" not recorded
    module: str = ""  # class of the outermost module, and the path below
    module_part: str = ""  # a bucket of DDP, a compiled graph


class OpEnded(StreamEvent, frozen=True, tag="op_ended"):
    """An op is over. `ended_s` is None where it is over and nobody knows since when."""

    rank: int
    host: str
    sequence: int
    group: str
    number: int | None
    kind: str
    ended_s: float | None
    took_s: float | None
    late: bool  # ended then or before
    tracked: bool  # False: on a device, and when it completed there is not known
    failed: bool
    error_s: float | None


class EventsLost(StreamEvent, frozen=True, tag="lost"):
    """Events that were not written. What is true now follows: hosts, states, verdicts again.

    `why` is `reader` (whoever reads the stream was too slow), `history` (ops of `rank` came faster
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
"""For the reference of fields."""

"""What changed on a host in one tick."""

from __future__ import annotations

from typing import Final

from frtop_probe.wire.gauges import Gauges, HostSample
from frtop_probe.wire.ops import Group, GroupProgress, Messages, Op
from frtop_probe.wire.ranks import (
    BlockSums,
    ExitInfo,
    Identity,
    RankStatus,
    ReportedValues,
    Transport,
    UncaughtException,
)
from frtop_probe.wire.snapshots import Process
from frtop_probe.wire.values import Int, Value

OF_OTHERS: Final = ": not looked at"
"""In a note about a host: other users have ranks there. After "; " comes what to do."""
RINGS_ELSEWHERE: Final = ": rings in "
"""In a note about a host: ranks of this user there belong to another agent. Likewise."""
NO_SEARCH: Final = "no search for jobs"
"""Begins the note of a host where frtop could not search for jobs."""
LEFT_GROUPS: Final = "it has destroyed its process groups"
"""Note of a rank without a recorder whose c10d state had groups and now has none."""
OTHERS_ENDED: Final = (
    "other ranks of it have ended: its launcher lives, and has fewer than it started"
)
"""Note of a rank without a recorder; an operator who connects now does not see those others."""

OF_RECORDER: Final = "recorder: "
"""Begins the note of a rank whose recorder cannot be used; the note says why."""


class RankUpdate(Value, frozen=True):
    """What changed about one rank; None and empty fields have not changed.

    `pending`, `transports` and `messages` differ: None means unchanged, empty means that there are
    none.
    `key` is the agent's number for the process, stable while the agent runs. In the response to
    `StateRequest`, all fields are set.
    """

    key: Int
    identity: Identity | None = None
    status: RankStatus | None = None
    groups: tuple[Group, ...] = ()
    group_progress: tuple[GroupProgress, ...] = ()
    pending: tuple[Op, ...] | None = None
    pending_more: Int = 0  # number of further pending ops that were left out
    process: Process | None = None
    exception: UncaughtException | None = None
    exit_info: ExitInfo | None = None
    notes: tuple[str, ...] = ()
    blocks: tuple[BlockSums, ...] = ()  # in the full state: the most recent blocks
    transports: tuple[Transport, ...] | None = None  # past c10d, as far as known
    gauges: Gauges | None = None  # of its devices, if it has any open
    messages: tuple[Messages, ...] | None = None  # sent once the rank has issued nothing for 1 s
    reported: tuple[ReportedValues, ...] = ()  # new values of the job; the full state has all


class Update(Value, frozen=True):
    """What changed on a host in one tick; also the host's full state on request.

    `number` counts ticks; the full state has the number of the last tick it includes. A client
    applies the updates that follow, and requests the state again when one is missing.
    """

    host: str
    instance: str  # the agent's; a new instance counts from the start
    number: Int
    monotonic_ns: Int
    wall_ns: Int
    ranks: tuple[RankUpdate, ...] = ()
    forgotten: tuple[Int, ...] = ()
    notes: tuple[str, ...] = ()  # about the host, such as unreadable rings; ("",): none left
    version: str = ""
    full: bool = False
    gauges: HostSample | None = None  # of the host; None: nothing new
    none_found: bool = False  # its last search found no rank but those that it tracks
    searching: bool = False  # its first search, or its first looks at ranks, are not over

"""What an agent answers, and the black box that it saves."""

from __future__ import annotations

from msgspec import Struct

from frtop_probe.wire.declaration import Response
from frtop_probe.wire.histories import History
from frtop_probe.wire.host_gauges import GaugeHistory
from frtop_probe.wire.ops import Issuer, Site
from frtop_probe.wire.ranks import Job
from frtop_probe.wire.snapshots import Snapshot, StackDump
from frtop_probe.wire.statistics import RankStatistics
from frtop_probe.wire.updates import Update
from frtop_probe.wire.values import Int


class StateResponse(Response, frozen=True, array_like=True, tag="state"):
    """`may_act` says whether this operator may also act on ranks."""

    update: Update
    may_act: bool = True


class TimeResponse(Response, frozen=True, array_like=True, tag="time"):
    monotonic_ns: Int
    wall_ns: Int


class HistoryResponse(Response, frozen=True, array_like=True, tag="history"):
    host: str
    key: Int
    history: History


class NativeStacksResponse(Response, frozen=True, array_like=True, tag="native"):
    """The native stacks of a rank as of `at_ns`, or why there are none.

    `note` is what else the user must know: that the process was left stopped, for instance.
    """

    host: str
    key: Int
    at_ns: Int
    stopped_ns: Int = 0  # how long the process stood still, at most
    dump: StackDump = StackDump(0)
    tool: str = ""  # "py-spy" or "pystack"; "" when nothing was attached
    note: str = ""


class SnapshotResponse(Response, frozen=True, array_like=True, tag="look"):
    host: str
    snapshots: tuple[Snapshot, ...]
    monotonic_ns: Int = 0


class StatisticsResponse(Response, frozen=True, array_like=True, tag="statistics"):
    """What ranks did up to `until_ns`, which took the agent `cpu_ns` of its time."""

    host: str
    since_ns: Int
    until_ns: Int
    ranks: tuple[RankStatistics, ...] = ()
    sites: tuple[Site, ...] = ()
    cpu_ns: Int = 0
    issuers: tuple[Issuer, ...] = ()


class GaugeHistoryResponse(Response, frozen=True, array_like=True, tag="gauges"):
    host: str
    history: GaugeHistory


class BlackBox(Struct, frozen=True, array_like=True):
    """The black box: what an agent saves of one job's ranks on its host.

    `before` is the state as of the last tick before the first bad death, None when there was
    none; `after` is the state as of writing. `snapshots` are the last ones taken, oldest first.
    `complete` says that every rank had ended and was read. `since_ns` is when the agent began to
    follow ranks without a recorder, by its monotonic clock; 0: they have recorders.
    """

    host: str
    instance: str
    job: Job
    monotonic_ns: Int
    wall_ns: Int
    before: Update | None
    after: Update
    snapshots: tuple[SnapshotResponse, ...] = ()
    histories: tuple[HistoryResponse, ...] = ()
    complete: bool = False
    version: str = ""
    since_ns: Int = 0
    gauges: GaugeHistory | None = None  # of the host, of the last ten minutes

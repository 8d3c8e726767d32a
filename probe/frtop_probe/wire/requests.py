"""What operators ask an agent, what it answers, and the black box that it saves."""

from __future__ import annotations

from frtop_probe.wire.declaration import RankRequest, RanksRequest, Request, Response
from frtop_probe.wire.gauges import GaugeHistory
from frtop_probe.wire.histories import History
from frtop_probe.wire.ops import Issuer, Site
from frtop_probe.wire.ranks import Job
from frtop_probe.wire.snapshots import Snapshot, StackDump
from frtop_probe.wire.statistics import RankStatistics
from frtop_probe.wire.updates import Update
from frtop_probe.wire.values import Int, Value


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

    `note` is what else the user must know, for instance that the process is still stopped.
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
    """What ranks did up to `until_ns`. The answer cost the agent `cpu_ns` of CPU time."""

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


class BlackBox(Value, frozen=True):
    """The black box: what an agent saves of one job's ranks on its host.

    `before` is the state at the last tick before the first bad death, None if there was none;
    `after` is the state when the box was written. `snapshots` are the latest, oldest first.
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
    gauges: GaugeHistory | None = None  # the host's last ten minutes
    minutes: GaugeHistory | None = None  # means of each minute since the job began


class StateRequest(Request, frozen=True, array_like=True, tag="state"):
    """Requests the full state; the answer has a full `Update`.

    With `read_only`, the operator gives up acting: from then on the agent refuses acts on this
    connection, whatever the key's right.
    """

    answer = StateResponse
    acts = False

    read_only: bool = False


class SnapshotRequest(RanksRequest, frozen=True, array_like=True, tag="look"):
    """Requests snapshots of some ranks: `/proc` of ranks and descendants, and the last `ops` ops.

    With `stacks`, also a non-blocking dump of the threads of these ranks, and of those processes in
    `pids` that are their descendants.
    """

    answer = SnapshotResponse
    acts = False
    at_once = 1  # an agent takes stacks for 2 s; what it does not reach by then is lost

    stacks: bool = True
    ops: Int = 0
    pids: tuple[Int, ...] = ()


class TimeRequest(Request, frozen=True, array_like=True, tag="time"):
    """Requests the agent's clocks; half of the round trip bounds the error of the comparison.

    `shown` are the agent's ranks without a recorder that the operator shows; the agent follows the
    others in less detail. None: the operator does not say.
    """

    answer = TimeResponse
    acts = False

    shown: tuple[Int, ...] | None = None


class HistoryRequest(RankRequest, frozen=True, array_like=True, tag="history"):
    """Requests the ops that a rank's ring still has, the newest `limit` (0: all).

    With a `group` (the rank's own id for it), only that group's collectives numbered `first` to
    `last`.
    """

    answer = HistoryResponse
    acts = False

    limit: Int = 0
    group: Int = 0
    first: Int = 0
    last: Int = 0


class NativeStacksRequest(RankRequest, frozen=True, array_like=True, tag="native"):
    """Requests the stacks of a rank's threads with their frames of C and C++.

    This acts: the rank's process stands still meanwhile, for up to some seconds. An agent takes
    stacks of one rank at a time, and refuses other such requests meanwhile ("busy").
    """

    answer = NativeStacksResponse
    once = True
    needs_life = True
    timeout_s = 20.0  # the agent gives its tool 10 s, and the process 5 s
    at_once = 1

    def unanswered(self, host: str, error: str, text: str) -> NativeStacksResponse:
        dump = StackDump(0, error=error, help=text)
        return NativeStacksResponse(self.id, host, self.key, 0, dump=dump)


class StatisticsRequest(RanksRequest, frozen=True, array_like=True, tag="statistics"):
    """Requests what ranks did from `since_ns` to `until_ns` (0: now), by the agent's clock.

    Each part costs extra: `calls`, the newest `samples` ops of each group, and the newest `steps`
    steps of each rank.
    """

    answer = StatisticsResponse
    acts = False
    once = True  # a lost connection loses a slice of time, and the figures say so
    timeout_s = 15.0

    since_ns: Int = 0
    until_ns: Int = 0
    calls: bool = True
    samples: Int = 0
    steps: Int = 0


class GaugeHistoryRequest(Request, frozen=True, array_like=True, tag="gauges"):
    """Requests what the agent remembers of the host's gauges, about ten minutes.

    With `gauges`, only gauges with these names. With `points`, at most that many points, each
    combining several samples in a row.
    """

    answer = GaugeHistoryResponse
    acts = False

    gauges: tuple[str, ...] = ()
    points: Int = 0

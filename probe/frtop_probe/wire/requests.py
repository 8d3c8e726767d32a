"""What operators ask of an agent."""

from __future__ import annotations

from frtop_probe.wire.declaration import RankRequest, RanksRequest, Request
from frtop_probe.wire.responses import (
    GaugeHistoryResponse,
    HistoryResponse,
    NativeStacksResponse,
    SnapshotResponse,
    StateResponse,
    StatisticsResponse,
    TimeResponse,
)
from frtop_probe.wire.snapshots import StackDump
from frtop_probe.wire.values import Int


class StateRequest(Request, frozen=True, array_like=True, tag="state"):
    """Requests the full state; answered with a full `Update`.

    With `read_only`, the operator gives up acting: from then on the agent refuses it on this
    connection, whatever the key's right.
    """

    answer = StateResponse
    acts = False

    read_only: bool = False


class SnapshotRequest(RanksRequest, frozen=True, array_like=True, tag="look"):
    """Requests snapshots of some ranks: `/proc` of them and their descendants, the last `ops` ops.

    With `stacks`, also a non-blocking dump of their threads, and of the processes in `pids` that
    are descendants of such a rank.
    """

    answer = SnapshotResponse
    acts = False
    at_once = 1  # an agent takes stacks for 2 s: what it did not reach by then is lost

    stacks: bool = True
    ops: Int = 0
    pids: tuple[Int, ...] = ()


class TimeRequest(Request, frozen=True, array_like=True, tag="time"):
    """Requests the agent's clocks; half of the round trip bounds the error of the comparison.

    `shown` are those of its ranks without a recorder that the operator shows: the others are
    followed with less detail. None: the operator does not say.
    """

    answer = TimeResponse
    acts = False

    shown: tuple[Int, ...] | None = None


class HistoryRequest(RankRequest, frozen=True, array_like=True, tag="history"):
    """Requests the ops that a rank's ring still has, the newest `limit` (0: all).

    With a `group` (the rank's own id of it), only that group's collectives with the numbers
    `first` to `last`. With `columns`, a history that is long may come as columns.
    """

    answer = HistoryResponse
    acts = False

    limit: Int = 0
    group: Int = 0
    first: Int = 0
    last: Int = 0
    columns: bool = False


class NativeStacksRequest(RankRequest, frozen=True, array_like=True, tag="native"):
    """Requests the stacks of a rank's threads with their frames of C and C++.

    An act: the rank's process stands still while they are taken, for up to some seconds. An agent
    takes those of one rank at a time, and refuses a second request meanwhile ("busy").
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

    What is asked for is what it costs: `calls`, the newest `samples` ops of each group and the
    newest `steps` steps of each rank.
    """

    answer = StatisticsResponse
    acts = False

    since_ns: Int = 0
    until_ns: Int = 0
    calls: bool = True
    samples: Int = 0
    steps: Int = 0


class GaugeHistoryRequest(Request, frozen=True, array_like=True, tag="gauges"):
    """Requests what the agent remembers of the host's gauges, some ten minutes.

    With `gauges`, only those of these names. With `points`, as many as that at most: each is then
    of some samples in a row.
    """

    answer = GaugeHistoryResponse
    acts = False

    gauges: tuple[str, ...] = ()
    points: Int = 0

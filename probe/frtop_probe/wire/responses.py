"""What an agent answers, and the black box that it saves."""

from __future__ import annotations

from msgspec import Struct

from frtop_probe.features.profile.messages import (
    ProfileDataResponse,
    ProfileResponse,
    SampleResponse,
)
from frtop_probe.features.tensor_checks.messages import NumberSample, NumberState, RecordedNow
from frtop_probe.features.tensors.messages import OpTensors
from frtop_probe.wire.histories import History
from frtop_probe.wire.host_gauges import GaugeHistory
from frtop_probe.wire.ops import Issuer, Site
from frtop_probe.wire.ranks import Job
from frtop_probe.wire.snapshots import Snapshot, StackDump
from frtop_probe.wire.statistics import RankStatistics
from frtop_probe.wire.updates import Update
from frtop_probe.wire.values import Int


class StateResponse(Struct, frozen=True, array_like=True, tag="state"):
    """`may_act` says whether this operator may also act on ranks."""

    id: Int
    update: Update
    may_act: bool = True


class TimeResponse(Struct, frozen=True, array_like=True, tag="time"):
    id: Int
    monotonic_ns: Int
    wall_ns: Int


class HistoryResponse(Struct, frozen=True, array_like=True, tag="history"):
    id: Int
    host: str
    key: Int
    history: History


class TensorsResponse(Struct, frozen=True, array_like=True, tag="tensors"):
    """The tensors of a rank's pending ops at `at_ns`.

    `error` is one of "", "gone", "silent" (the rank holds the GIL), "stopped", "deadline", "none"
    (nothing pending), "missing" (no responder), "failed"; `help` is the message for the user,
    with the next step.
    """

    id: Int
    host: str
    key: Int
    at_ns: Int
    ops: tuple[OpTensors, ...] = ()
    error: str = ""
    help: str = ""


class DataResponse(Struct, frozen=True, array_like=True, tag="data"):
    """Bytes of a tensor from `offset` on; fewer than requested at its end (`total`)."""

    id: Int
    key: Int
    sequence: Int
    index: Int
    offset: Int
    total: Int
    data: bytes = b""
    error: str = ""
    help: str = ""


class NativeStacksResponse(Struct, frozen=True, array_like=True, tag="native"):
    """The native stacks of a rank as of `at_ns`, or why there are none.

    `note` is what else the user must know: that the process was left stopped, for instance.
    """

    id: Int
    host: str
    key: Int
    at_ns: Int
    stopped_ns: Int = 0  # how long the process stood still, at most
    dump: StackDump = StackDump(0)
    tool: str = ""  # "py-spy" or "pystack"; "" when nothing was attached
    note: str = ""


class SnapshotResponse(Struct, frozen=True, array_like=True, tag="look"):
    id: Int
    host: str
    snapshots: tuple[Snapshot, ...]
    monotonic_ns: Int = 0


class StatisticsResponse(Struct, frozen=True, array_like=True, tag="statistics"):
    """What ranks did up to `until_ns`, which took the agent `cpu_ns` of its time."""

    id: Int
    host: str
    since_ns: Int
    until_ns: Int
    ranks: tuple[RankStatistics, ...] = ()
    sites: tuple[Site, ...] = ()
    cpu_ns: Int = 0
    issuers: tuple[Issuer, ...] = ()


class GaugeHistoryResponse(Struct, frozen=True, array_like=True, tag="gauges"):
    id: Int
    host: str
    history: GaugeHistory


class ControlResponse(Struct, frozen=True, array_like=True, tag="control"):
    """What a rank records after a `ControlRequest`; `error` and `help` as in `TensorsResponse`."""

    id: Int
    host: str
    key: Int
    recorded: RecordedNow = RecordedNow()
    error: str = ""
    help: str = ""


class NumbersResponse(Struct, frozen=True, array_like=True, tag="numbers"):
    """Samples of a rank, with lines and issuers of their ops by the rank's own ids.

    `lost` samples after the number asked for were overwritten before.
    """

    id: Int
    host: str
    key: Int
    samples: tuple[NumberSample, ...] = ()
    sites: tuple[tuple[Int, Site], ...] = ()
    lost: Int = 0
    state: NumberState = NumberState()
    error: str = ""
    help: str = ""
    issuers: tuple[tuple[Int, Issuer], ...] = ()


class Error(Struct, frozen=True, array_like=True, tag="refusal"):
    """The agent will not, or cannot; `text` is a message for the user.

    `reason` is one of "" (unknown), "permission", "busy", "gone", "failed", "words" (malformed).
    """

    id: Int
    text: str
    reason: str = ""


Response = (
    StateResponse
    | SnapshotResponse
    | TimeResponse
    | HistoryResponse
    | TensorsResponse
    | DataResponse
    | NativeStacksResponse
    | StatisticsResponse
    | GaugeHistoryResponse
    | ProfileResponse
    | ProfileDataResponse
    | SampleResponse
    | ControlResponse
    | NumbersResponse
    | Error
)


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

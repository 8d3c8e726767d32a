"""Every message between agent and operator.

Messages are msgpack arrays, one per struct; msgspec checks their types while decoding. Every
ZeroMQ message is one frame that begins with `PROTOCOL`; any other beginning is another
protocol. One frame only, because libzmq aborts the process when a connection ends between two
frames of a message that is being received (`!_more`, fq.cpp).

Evolution: fields are only appended and have defaults; types never change; unknown trailing
fields are ignored. So old screens read new agents, and new screens old agents. The bytes
under `tests/wire/bytes` and the files under `tests/export/old` prove it.

Times are `time.monotonic_ns()` of the sending host, ranks are global ranks. None in a field
that could be known means unknown: neither equal to nor different from anything.
"""

from frtop_probe.wire.codec import (
    MAX_MESSAGE,
    PROTOCOL,
    WireError,
    declared,
    decode_box,
    decode_request,
    decode_response,
    decode_update,
    encode,
    from_frame,
    size_of_rank,
    to_frame,
)
from frtop_probe.wire.declaration import (
    Error,
    Piece,
    PieceRequest,
    RankRequest,
    RanksRequest,
    Request,
    Response,
)
from frtop_probe.wire.gauges import (
    Gauges,
    Gpu,
    GpuSample,
)
from frtop_probe.wire.histories import (
    UNTIMED,
    History,
    HistoryColumn,
    HistoryColumns,
    HistoryRow,
    Mark,
)
from frtop_probe.wire.host_gauges import (
    GaugeColumn,
    GaugeHistory,
    GaugeSeries,
    GaugeSubject,
    HostSample,
)
from frtop_probe.wire.ops import (
    Group,
    GroupProgress,
    Issuer,
    MessageCount,
    Messages,
    Op,
    Signature,
    Site,
    TensorSpec,
)
from frtop_probe.wire.ranks import (
    BlockSums,
    DataLoaderFetch,
    ExitInfo,
    Identity,
    Job,
    RankStatus,
    TraceFrame,
    Transport,
    UncaughtException,
)
from frtop_probe.wire.requests import (
    GaugeHistoryRequest,
    HistoryRequest,
    NativeStacksRequest,
    SnapshotRequest,
    StateRequest,
    StatisticsRequest,
    TimeRequest,
)
from frtop_probe.wire.responses import (
    BlackBox,
    GaugeHistoryResponse,
    HistoryResponse,
    NativeStacksResponse,
    SnapshotResponse,
    StateResponse,
    StatisticsResponse,
    TimeResponse,
)
from frtop_probe.wire.snapshots import (
    DeadConnection,
    EndedChild,
    Process,
    Snapshot,
    StackDump,
    ThreadStack,
    ThreadWait,
)
from frtop_probe.wire.statistics import (
    OCTAVE,
    CallStatistics,
    ModuleStatistics,
    RankStatistics,
    SampledOps,
    StepTimes,
)
from frtop_probe.wire.tensors import OpTensors, TensorsResponse, TensorSummary
from frtop_probe.wire.updates import (
    LEFT_GROUPS,
    NO_SEARCH,
    OF_OTHERS,
    OF_RECORDER,
    OTHERS_ENDED,
    RankUpdate,
    Update,
)

__all__ = [
    "LEFT_GROUPS",
    "MAX_MESSAGE",
    "NO_SEARCH",
    "OCTAVE",
    "OF_OTHERS",
    "OF_RECORDER",
    "OTHERS_ENDED",
    "PROTOCOL",
    "UNTIMED",
    "BlackBox",
    "BlockSums",
    "CallStatistics",
    "DataLoaderFetch",
    "DeadConnection",
    "EndedChild",
    "Error",
    "ExitInfo",
    "GaugeColumn",
    "GaugeHistory",
    "GaugeHistoryRequest",
    "GaugeHistoryResponse",
    "GaugeSeries",
    "GaugeSubject",
    "Gauges",
    "Gpu",
    "GpuSample",
    "Group",
    "GroupProgress",
    "History",
    "HistoryColumn",
    "HistoryColumns",
    "HistoryRequest",
    "HistoryResponse",
    "HistoryRow",
    "HostSample",
    "Identity",
    "Issuer",
    "Job",
    "Mark",
    "MessageCount",
    "Messages",
    "ModuleStatistics",
    "NativeStacksRequest",
    "NativeStacksResponse",
    "Op",
    "OpTensors",
    "Piece",
    "PieceRequest",
    "Process",
    "RankRequest",
    "RankStatistics",
    "RankStatus",
    "RankUpdate",
    "RanksRequest",
    "Request",
    "Response",
    "SampledOps",
    "Signature",
    "Site",
    "Snapshot",
    "SnapshotRequest",
    "SnapshotResponse",
    "StackDump",
    "StateRequest",
    "StateResponse",
    "StatisticsRequest",
    "StatisticsResponse",
    "StepTimes",
    "TensorSpec",
    "TensorSummary",
    "TensorsResponse",
    "ThreadStack",
    "ThreadWait",
    "TimeRequest",
    "TimeResponse",
    "TraceFrame",
    "Transport",
    "UncaughtException",
    "Update",
    "WireError",
    "declared",
    "decode_box",
    "decode_request",
    "decode_response",
    "decode_update",
    "encode",
    "from_frame",
    "size_of_rank",
    "to_frame",
]

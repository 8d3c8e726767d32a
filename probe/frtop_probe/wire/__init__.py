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
    decode_box,
    decode_request,
    decode_response,
    decode_update,
    encode,
    from_frame,
    to_frame,
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
from frtop_probe.wire.ras import (
    RasCommunicator,
    RasMissingRank,
    RasNamedRank,
    RasProblem,
    RasRank,
    RasReport,
    RasSummaryRow,
)
from frtop_probe.wire.requests import (
    DataRequest,
    GaugeHistoryRequest,
    HistoryRequest,
    NativeStacksRequest,
    RasRequest,
    Request,
    SnapshotRequest,
    StateRequest,
    StatisticsRequest,
    TensorsRequest,
    TimeRequest,
)
from frtop_probe.wire.responses import (
    BlackBox,
    DataResponse,
    Error,
    GaugeHistoryResponse,
    HistoryResponse,
    NativeStacksResponse,
    RasResponse,
    Response,
    SnapshotResponse,
    StateResponse,
    StatisticsResponse,
    TensorsResponse,
    TimeResponse,
    UpdateMessage,
)
from frtop_probe.wire.snapshots import (
    DeadConnection,
    Process,
    Snapshot,
    StackDump,
    ThreadStack,
)
from frtop_probe.wire.statistics import (
    OCTAVE,
    CallStatistics,
    RankStatistics,
    SampledOps,
    StepTimes,
)
from frtop_probe.wire.tensors import (
    OpTensors,
    TensorSummary,
)
from frtop_probe.wire.updates import (
    BY_ROOTS_LIST,
    LEFT_GROUPS,
    NO_SEARCH,
    OF_OTHERS,
    RankUpdate,
    Update,
)

__all__ = [
    "BY_ROOTS_LIST",
    "LEFT_GROUPS",
    "MAX_MESSAGE",
    "NO_SEARCH",
    "OCTAVE",
    "OF_OTHERS",
    "PROTOCOL",
    "UNTIMED",
    "BlackBox",
    "BlockSums",
    "CallStatistics",
    "DataLoaderFetch",
    "DataRequest",
    "DataResponse",
    "DeadConnection",
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
    "NativeStacksRequest",
    "NativeStacksResponse",
    "Op",
    "OpTensors",
    "Process",
    "RankStatistics",
    "RankStatus",
    "RankUpdate",
    "RasCommunicator",
    "RasMissingRank",
    "RasNamedRank",
    "RasProblem",
    "RasRank",
    "RasReport",
    "RasRequest",
    "RasResponse",
    "RasSummaryRow",
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
    "TensorsRequest",
    "TensorsResponse",
    "ThreadStack",
    "TimeRequest",
    "TimeResponse",
    "TraceFrame",
    "Transport",
    "UncaughtException",
    "Update",
    "UpdateMessage",
    "WireError",
    "decode_box",
    "decode_request",
    "decode_response",
    "decode_update",
    "encode",
    "from_frame",
    "to_frame",
]

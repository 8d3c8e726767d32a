"""Every message between agent and operator.

Messages are msgpack arrays, one per struct; msgspec checks their types while decoding. Every
ZeroMQ message is one frame that begins with `PROTOCOL`; any other beginning is another
protocol. One frame only: libzmq aborts the process when a connection ends between two
frames of a message that is being received (`!_more`, fq.cpp).

Evolution: fields are only appended and have defaults; types never change; unknown trailing
fields are ignored. So old screens read new agents, and new screens old agents. From
the first release on, `tests/wire/messages.jsonl` keeps a message of each type.

Times are `time.monotonic_ns()` of the sending host, ranks are global ranks. None means
unknown: neither equal to nor different from anything.
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
    GaugeColumn,
    GaugeHistory,
    Gauges,
    GaugeSeries,
    GaugeSubject,
    Gpu,
    GpuSample,
    HostSample,
)
from frtop_probe.wire.histories import (
    UNTIMED,
    History,
    HistoryColumn,
    HistoryColumns,
    Mark,
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
from frtop_probe.wire.output import OutputFile, OutputResponse
from frtop_probe.wire.ranks import (
    BlockSums,
    DataLoaderFetch,
    ExitInfo,
    Identity,
    Job,
    RankStatus,
    ReportedValues,
    TraceFrame,
    Transport,
    UncaughtException,
)
from frtop_probe.wire.recording import (
    ChangeRecording,
    RecordedNow,
    RecordingResponse,
)
from frtop_probe.wire.requests import (
    BlackBox,
    GaugeHistoryRequest,
    GaugeHistoryResponse,
    HistoryRequest,
    HistoryResponse,
    NativeStacksRequest,
    NativeStacksResponse,
    SnapshotRequest,
    SnapshotResponse,
    StateRequest,
    StateResponse,
    StatisticsRequest,
    StatisticsResponse,
    TimeRequest,
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
    CallColumns,
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
    RINGS_ELSEWHERE,
    RankUpdate,
    Update,
)

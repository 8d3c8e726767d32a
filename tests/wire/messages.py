"""One message of each type with every field set: the source of the files in `bytes/`."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from frtop_probe.wire import (
    UNTIMED,
    BlockSums,
    ControlRequest,
    ControlResponse,
    DataLoaderFetch,
    DataRequest,
    DataResponse,
    DeadConnection,
    EndedChild,
    Error,
    ExitInfo,
    GaugeColumn,
    GaugeHistory,
    GaugeHistoryRequest,
    GaugeHistoryResponse,
    Gauges,
    GaugeSeries,
    GaugeSubject,
    Gpu,
    GpuSample,
    Group,
    GroupProgress,
    History,
    HistoryColumn,
    HistoryColumns,
    HistoryRequest,
    HistoryResponse,
    HistoryRow,
    HostSample,
    Identity,
    Issuer,
    Job,
    Mark,
    MessageCount,
    Messages,
    NativeStacksRequest,
    NativeStacksResponse,
    NumberSample,
    NumbersOrder,
    NumbersRequest,
    NumbersResponse,
    NumberState,
    Op,
    OpTensors,
    Process,
    ProfileDataRequest,
    ProfileDataResponse,
    ProfileFile,
    ProfileRequest,
    ProfileResponse,
    RankStatus,
    RankUpdate,
    RecordedNow,
    SampleRequest,
    SampleResponse,
    Signature,
    Site,
    Snapshot,
    SnapshotRequest,
    SnapshotResponse,
    StackDump,
    StateRequest,
    StateResponse,
    TensorSpec,
    TensorsRequest,
    TensorsResponse,
    TensorSummary,
    ThreadStack,
    TimeRequest,
    TimeResponse,
    TraceFrame,
    Transport,
    UncaughtException,
    Update,
)

_SPECS: Final = (TensorSpec("bfloat16", (4096, 8192), 3, "cuda:5"),)
_SIGNATURE: Final = Signature("all_to_all", "sum", 3, 4, 7, _SPECS, _SPECS, (1, 2), (2, 1))
_SITE: Final = Site("/srv/train.py", 214, "train")
_OP: Final = Op(
    41207, 2, 8812, _SIGNATURE, _SITE, 10**12, -(10**12), 2**47, True, True, False, True, 600_000,
    18_200_000, 900,
)  # fmt: skip
_ISSUER: Final = Issuer("forward", "layers.3.mlp", "Net")
_STATUS: Final = RankStatus(
    1, 10**12, 50_019, 2203, 10**12, DataLoaderFetch(7, 5, 2, 90112, 4), 1, 2, 3
)
_PROCESS: Final = Process(
    90077, "D", "python", "folio_wait_bit", "read", "/data/shard-0412", 10**10, 10**11, 41 * 2**30,
    212, 4, 90001,
)  # fmt: skip
_FRAME: Final = TraceFrame("train", "/srv/train.py", 214, "train", "loss.backward()")
_STACK: Final = ThreadStack(2**47, 90077, "MainThread", False, True, (_FRAME,))
_RANK: Final = RankUpdate(
    key=1,
    identity=Identity(
        90077, 167335, 37, 5, Job("node0", 29500, 64, "llama", 1, "c0ffee", "llama-70b"),
        ("train.py", "--fast"), "/srv", "2.15.0", "3.11.7", 10**12, 2**47, 90080,
    ),
    status=_STATUS,
    groups=(Group(2, "5", "dp:0", "nccl", "0-63", False, 2, 600.0),),
    group_progress=(GroupProgress(2, 8812, 17, 10**12, _OP),),
    pending=(_OP,),
    pending_more=4,
    process=_PROCESS,
    exception=UncaughtException(
        "ValueError", "no such shard", "MainThread", True, 10**12, (_FRAME,)
    ),
    exit_info=ExitInfo(10**12, 1, 9, True, 2),
    notes=("the side table is full",),
)  # fmt: skip
_UPDATE: Final = Update(
    "node4", "99e1cc05", 12, 10**12, 10**18, (_RANK,), (3, 4), ("a ring cannot be read",), "0.1.0",
    True,
)  # fmt: skip

UPDATE: Final = _UPDATE
UPDATES: Final = {
    "update-blocks": Update(
        "node4", "99e1cc05", 13, 10**12, 10**18,
        (RankUpdate(1, blocks=(BlockSums(2, 8769, 64, b"\x01\x02\x03\x04", b"\x05" * 4, 1),)),),
    ),
    "update-transports": Update(
        "node4", "99e1cc05", 14, 10**12, 10**18,
        (
            RankUpdate(1, transports=(Transport("DeepEP", "module deep_ep is imported"),)),
            RankUpdate(2, transports=()),
        ),
    ),
    "update-messages": Update(
        "node4", "99e1cc05", 14, 10**12, 10**18,
        (
            RankUpdate(1, messages=(
                Messages(
                    1, 12, True, (MessageCount(True, 3, 7, 8), MessageCount(False, None, 0, 4))
                ),
                Messages(2, 1, False),
            )),
            RankUpdate(2, messages=()),
        ),
    ),
    "update-gauges": Update(
        "node4", "99e1cc05", 15, 10**12, 10**18,
        (
            RankUpdate(1, gauges=Gauges((
                Gpu(
                    3, "GPU-7d", "NVIDIA H200", 700_000, 139 << 30, 71_500, 2, False, "",
                    (
                        GpuSample(10**12 - 2 * 10**9, 100, 96_000, 31 << 30, 1980, 0),
                        GpuSample(10**12, None, 97_000),
                    ),
                ),
                Gpu(4, error="GPU is lost", mig=True),
            ), "which GPU it uses is not known")),
            RankUpdate(2, gauges=Gauges()),
        ),
    ),
    "update-host-gauges": Update(
        "node4", "99e1cc05", 16, 10**12, 10**18,
        (
            RankUpdate(1, gauges=Gauges((
                Gpu(3, samples=(GpuSample(10**12, 98, 96_000, 31 << 30, 1110, 128, 61),),
                    max_sm_mhz=1980, xid=79, xid_at_ns=10**12),
            ))),
        ),
        gauges=HostSample(
            10**12,
            (
                GaugeSubject(1, "host", ""),
                GaugeSubject(2, "disk", "/data", "nfs4 filer:/data", (1, 2), "it does not answer"),
            ),
            (GaugeSeries(1, 1, "cpu"), GaugeSeries(2, 1, "load"), GaugeSeries(300, 2, "free")),
            (1, 2, 300), (612, 2**40, None), (7,), ("no InfiniBand",),
        ),
    ),
    "update-group-gone": Update(
        "node4", "99e1cc05", 14, 10**12, 10**18,
        (RankUpdate(1, groups=(Group(2, "5", "dp:0", "gloo", "0-63", True, 0, 600.0, True),)),),
    ),
}  # fmt: skip
"""Messages of later versions have files of their own; existing files never change."""
REQUESTS: Final = {
    "request-state": StateRequest(7),
    "request-snapshot": SnapshotRequest(8, (1, 2), False, 200, (90112,)),
    "request-state-read-only": StateRequest(7, True),
    "request-time": TimeRequest(10),
    "request-time-shown": TimeRequest(10, (1, 2, 7)),
    "request-history": HistoryRequest(11, 1, 500),
    "request-history-of-group": HistoryRequest(11, 1, 500, 2, 8769, 8832),
    "request-history-columns": HistoryRequest(11, 1, 500, 0, 0, 0, True),
    "request-tensors": TensorsRequest(12, 1, 41207),
    "request-tensors-devices": TensorsRequest(12, 1, 41207, True),
    "request-data": DataRequest(13, 1, 41207, 2, 4096, 65536),
    "request-native-stacks": NativeStacksRequest(14, 1),
    "request-profile": ProfileRequest(
        16, 1, "begin", "0123456789abcdef", 5, 2.5, 30.0, True, True, True, False, True
    ),
    "request-profile-data": ProfileDataRequest(17, 1, "trace", 4096, 65536),
    "request-sample": SampleRequest(18, 1, 10.0, 100, False),
    "request-gauges": GaugeHistoryRequest(15, ("cpu", "in"), 60),
    "request-control": ControlRequest(
        16, 1, NumbersOrder(4, 100, 60, True, (1, 3), 5), False, "loss jumped here"
    ),
    "request-control-sites": ControlRequest(17, 1, sites=False),
    "request-control-longer": ControlRequest(21, 1, longer=True),
    "request-control-from-step": ControlRequest(18, 1, NumbersOrder(1, 100, from_step=240)),
    "request-control-by": ControlRequest(19, 1, NumbersOrder(1, 100, by="mo@node4 PID 17")),
    "request-control-end": ControlRequest(20, 1, NumbersOrder(watch=3)),
    "request-numbers": NumbersRequest(17, 1, 4096),
}
RESPONSES: Final = {
    "response-state": StateResponse(7, _UPDATE),
    "response-snapshot": SnapshotResponse(
        8,
        "node4",
        (
            Snapshot(
                1, 10**12, _STATUS, (_PROCESS,),
                (StackDump(90077, (_STACK,)), StackDump(90112, (), "refused", "ptrace_scope is 1")),
                (_OP,), 12, (_PROCESS,),
            ),
        ),
        10**12,
    ),
    "response-snapshot-dead-connections": SnapshotResponse(
        8,
        "node4",
        (Snapshot(1, 10**12,
              dead_connections=(DeadConnection("10.0.0.1:4711", "[fe80::1]:29500", 96, 4),),
              addresses=("10.0.0.1", "fe80::1")),),
        10**12,
    ),
    "response-snapshot-ended-children": SnapshotResponse(
        8,
        "node4",
        (Snapshot(1, 10**12, ended=(EndedChild(4711, "pt_data_worker", 10**12),)),),
        10**12,
    ),
    "response-error": Error(9, "no such rank on node4 any more"),
    "response-error-reason": Error(9, "no such rank on node4 any more", "gone"),
    "response-state-read-only": StateResponse(7, _UPDATE, False),
    "response-time": TimeResponse(10, 10**12, 10**18),
    "response-history": HistoryResponse(
        11,
        "node4",
        1,
        History(
            (_SIGNATURE,), (_SITE,),
            (HistoryRow(41207, 2, 8812, 1, 1, 10**12, -(10**9), 2**47, 5, True, 600_000),), 12,
        ),
    ),
    "response-history-flight-recorder": HistoryResponse(
        11,
        "node4",
        1,
        History(
            (_SIGNATURE,), (), (HistoryRow(-(2**40), 2, 8812, 1, 0, 10**12, 1, 0, UNTIMED),), 3,
            "Flight Recorder",
        ),
    ),
    "response-history-columns": HistoryResponse(
        11,
        "node4",
        1,
        History(
            (_SIGNATURE,), (_SITE,), (), 12, "",
            HistoryColumns(
                HistoryColumn(41207, 1, b"\1\1"),
                HistoryColumn(2),
                HistoryColumn(8812, 1, b"\1\1"),
                HistoryColumn(1),
                HistoryColumn(1),
                HistoryColumn(10**12, 4, b"\x40\x42\x0f\0" * 2),
                HistoryColumn(10**9, 8, bytes(7) + b"\xff" * 9),
                HistoryColumn(2**47),
                HistoryColumn(5, 2, b"\0\1\0\xff"),
                HistoryColumn(0),
                HistoryColumn(600_000),
            ),
        ),
    ),
    "response-history-issuers": HistoryResponse(
        11,
        "node4",
        1,
        History(
            (_SIGNATURE,), (_SITE,), (), 0, "",
            HistoryColumns(
                HistoryColumn(41207, 1, b"\1"),
                HistoryColumn(2),
                HistoryColumn(8812, 1, b"\1"),
                HistoryColumn(1),
                HistoryColumn(1),
                HistoryColumn(10**12, 4, b"\x40\x42\x0f\0"),
                HistoryColumn(10**9),
                HistoryColumn(2**47),
                HistoryColumn(5),
                HistoryColumn(0),
                HistoryColumn(600_000),
                HistoryColumn(1, 1, b"\1"),
            ),
            issuers=(
                _ISSUER,
                Issuer("backward", "", "Net", "DDP bucket 0: a ... b (2 parameters)", ("a", "b")),
            ),
        ),
    ),
    "response-snapshot-issuer": SnapshotResponse(
        8, "node4", (Snapshot(1, 10**12, ops=(replace(_OP, issuer=_ISSUER),)),), 10**12
    ),
    "response-history-marks": HistoryResponse(
        11,
        "node4",
        1,
        History(
            marks=(
                Mark("step", 10**12, 10**12, 412, samples=4096),
                Mark("fetch", 10**12 + 5, 0),
                Mark("note", 10**12 + 7, 10**12 + 7, text="checkpoint written"),
            ),
        ),
    ),
    "response-snapshot-marks": SnapshotResponse(
        8,
        "node4",
        (Snapshot(1, 10**12, ops=(_OP,), marks=(Mark("backward", 10**12, 10**12 + 9, 412),)),),
        10**12,
    ),
    "response-snapshot-flight-recorder": SnapshotResponse(
        8,
        "node4",
        (Snapshot(1, 10**12, ops=(replace(_OP, timed=False),), ops_note="Flight Recorder"),),
        10**12,
    ),
    "response-tensors": TensorsResponse(
        12, "node4", 1, 10**12,
        (
            OpTensors(
                41207,
                (
                    TensorSummary(
                        "input", "bfloat16", (4096, 8192), "cuda:5", 2**26, 2**25, 2**20, -1.5,
                        2.5, 0.25, 100.0, 3, 4, ("0.5", "nan"), "c0ffee", "not all of it",
                    ),
                ),
                "none left",
            ),
        ),
        "deadline", "ask again",
    ),
    "response-profile": ProfileResponse(
        16, "node4", 1, 10**12, "ready", 812, 816, 2 * 10**9, 10**7,
        ((10**12, 17 * 10**17), (10**12 + 2 * 10**9, 17 * 10**17 + 2 * 10**9)),
        (ProfileFile("trace", 10**7),), "failed", "the script profiles itself",
    ),
    "response-profile-data": ProfileDataResponse(
        17, 1, "trace", 4096, 3, 10**7, b"\x78\x01", "gone", "it is not there any more"
    ),
    "response-sample": SampleResponse(
        18, "node4", 1, 10**12, 10.0, 100, (("train (train.py:4);step (train.py:9)", 812),), 3,
        "of 5,000 different stacks the 4,096 most frequent ones", "refused", "ptrace_scope is 1",
    ),
    "response-native-stacks": NativeStacksResponse(
        14, "node4", 1, 10**12, 700_000_000,
        StackDump(
            90077,
            (ThreadStack(0, 90080, "pt_gloo_runloop", False, False, (
                TraceFrame("gloo::ring", "/opt/torch/lib/libtorch_cpu.so", 0, native=True),
            )),),
        ),
        "pystack", "process 90077 is stopped",
    ),
    "response-gauges": GaugeHistoryResponse(
        15, "node4",
        GaugeHistory(
            3, HistoryColumn(10**12, 8, b"\0\x94\x35\x77\0\0\0\0" * 2),
            (GaugeSubject(1, "host", ""),),
            (GaugeColumn(GaugeSeries(1, 1, "cpu"), HistoryColumn(612, 2, b"\1\0\xff\xff")),),
            ("no InfiniBand",),
        ),
    ),
    "response-control": ControlResponse(
        16, "node4", 1,
        RecordedNow(NumberState(True, 4, 96, 58, 5, 12, 1, 2, "no room"), True, 8192, 2405632),
        "failed", "the ring has no room for more notes",
    ),
    "response-control-sites": ControlResponse(
        17, "node4", 1, RecordedNow(NumberState(thinned=40), slots=8192, sites=False)
    ),
    "response-control-longer": ControlResponse(
        21, "node4", 1,
        RecordedNow(slots=8192, ring_bytes=2405632, longer_slots=65536, longer_bytes=5767168),
    ),
    "response-control-watch": ControlResponse(
        18, "node4", 1, RecordedNow(NumberState(True, 1, 9, watch=3, by="mo@node4 PID 17"))
    ),
    "response-numbers-shard": NumbersResponse(
        18, "node4", 1,
        (
            NumberSample(
                4098, 0, 3, "layers.0.weight", "parameter", "optimizer 0", 231, 10**12, 0,
                "float32", 512, 2048, 2048, shard=True,
            ),
        ),
    ),
    "response-numbers": NumbersResponse(
        17, "node4", 1,
        (
            NumberSample(
                4097, 1, 8812, "all_reduce", "output", "wait", 231, 10**12, 3, "bfloat16",
                1024, 2048, 2048, "9f86d081", 3, 1, 7, 2, -1.5, 2.5, 0.25, 41.5, "no room",
            ),
        ),
        ((3, Site("train.py", 231, "step")),), 2,
        NumberState(True, 4, 96), "gone", "see how it ended",
    ),
    "response-numbers-modules": NumbersResponse(
        19, "node4", 1,
        (
            NumberSample(
                4099, 1, 8813, "all_reduce", "input", "issue", 231, 10**12, 3, "float32", 512,
                2048, 2048, "9f86d081", 1, issuer=16391, parameter="layers.3.mlp.weight",
            ),
        ),
        issuers=(
            (16391, Issuer("backward", "", "Net", "DDP bucket 2: layers.3 (2 parameters)")),
        ),
    ),
    "response-data": DataResponse(13, 1, 41207, 2, 4096, 2**26, b"\x00\x80", "gone", "too late"),
}  # fmt: skip

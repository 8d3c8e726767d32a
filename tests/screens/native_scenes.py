"""Native stacks of a rank that waits in gloo, as its agent sends them."""

from __future__ import annotations

from msgspec.structs import replace

from frtop_probe import wire
from frtop_tui.diagnosis.model import Frame

from . import scenes
from .scenes import HOST_NOW, S

_LIB = "/opt/lib/python3.12/site-packages/torch/lib/libtorch_cpu.so"
_C10D = "/opt/lib/python3.12/site-packages/torch/distributed/distributed_c10d.py"


def native(function: str, library: str = _LIB) -> wire.TraceFrame:
    return wire.TraceFrame(function, library, 0, native=True)


def stacks(pid: int) -> tuple[wire.ThreadStack, ...]:
    """The main thread, the one in which the op runs, and three that wait alike."""
    main = (
        native("pthread_cond_wait", "/lib/libc.so.6"),
        native("c10d::Work::wait"),
        wire.TraceFrame("all_reduce", _C10D, 3252),
        wire.TraceFrame("<module>", "/home/ml/llama/train.py", 20),
        native("Py_RunMain", "/lib/libpython3.12.so"),
        native("_start", "/usr/bin/python3"),
    )
    op = (native("gloo::transport::tcp::UnboundBuffer::waitRecv"), native("gloo::ring"))
    idle = (native("blas_thread_server", "/opt/libscipy_openblas64_.so"),)
    return (
        wire.ThreadStack(0, pid, "MainThread", False, False, main),
        wire.ThreadStack(0, pid + 1, "pt_gloo_runloop", False, False, op),
        *(wire.ThreadStack(0, pid + 2 + i, "python", False, False, idle) for i in range(3)),
    )


def taken(pid: int, **fields: object) -> wire.NativeStacksResponse:
    response = wire.NativeStacksResponse(
        1, "node4", 37, HOST_NOW - S // 2, 420_000_000, wire.StackDump(pid, stacks(pid)), "pystack"
    )
    return replace(response, **fields)


def refused(pid: int, error: str, text: str) -> wire.NativeStacksResponse:
    dump = wire.StackDump(pid, error=error, help=text)
    return taken(pid, at_ns=0, stopped_ns=0, tool="", dump=dump)


def with_native(
    response: wire.NativeStacksResponse | None, rank: int = 37, frame: Frame | None = None
) -> Frame:
    """The frame, a moment later, with this of the rank."""
    frame = scenes.hung() if frame is None else frame
    ranks = {**frame.ranks, rank: replace(frame.ranks[rank], native=response)}
    return replace(frame, ranks=ranks, now_ns=frame.now_ns + 1)

"""What a thread is doing, by its stack and by /proc.

py-spy shows Python frames only: for a C call (`time.sleep`, `lock.acquire`, `read`) it shows the
line that makes it. So the text of that line and the kernel's view complement each other.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from msgspec import Struct

from frtop_probe import wire
from frtop_tui.diagnosis.causes import LocationKind
from frtop_tui.job.stack_frames import (
    frame_line,
    is_user_code,
    is_wrapper,
    shown_frames,
    user_frame,
)

OP_WAITS: Final = frozenset({"collective", "backward", "device", "store"})
"""Places where a sleeping thread may be blocked in an op."""
FILE_KINDS: Final = frozenset({"file_io", "file_lock"})
"""Places at a file, which the kernel often names."""


class StackLocation(Struct, frozen=True):
    """What a thread is doing, and the line of the user's program that led there.

    `leaf` is the innermost frame shown. `sure` is False if only the kernel shows it: a wait inside
    C++ looks the same.
    """

    kind: LocationKind
    line: str = ""  # "train.py:214 (main)"
    leaf: wire.TraceFrame | None = None
    sure: bool = True


_PATH_CALLS: Final = frozenset({
    "openat", "open", "stat", "newfstatat", "statx", "getdents64", "unlink", "rename", "fsync",
    "fdatasync",
})  # fmt: skip
"""System calls on files, whatever their descriptor is."""
_FILE_CALLS: Final = _PATH_CALLS | frozenset(
    ["read", "pread64", "readv", "preadv", "write", "pwrite64", "writev", "mmap", "msync"]
)
_SOCKET_CALLS: Final = frozenset(["connect", "recvfrom", "recvmsg", "sendto", "sendmsg"])
_SERVER_CALLS: Final = frozenset({"accept", "accept4", "epoll_wait", "epoll_pwait", "epoll_pwait2"})
"""Where main threads of servers sleep. Ops sleep in a futex or poll a store."""
_LOCK_CALLS: Final = frozenset({"flock", "fcntl"})
"""`fcntl` blocks with F_SETLKW only."""
_LOCK_WAITS: Final = re.compile(r"locks_lock_inode_wait|flock_lock|posix_lock|setlk|lock_file_wait")
_CHILD_CALLS: Final = frozenset({"wait4", "waitid"})
_STREAM_CALLS: Final = frozenset({"read", "readv", "write", "writev"})
_TERMINALS: Final = ("/dev/pts/", "/dev/tty")
_POLL_CALLS: Final = frozenset({"poll", "ppoll"})
"""How a store's client waits for its answer; gloo waits in a futex."""
_SLEEP_CALLS: Final = frozenset({"nanosleep", "clock_nanosleep"})


class _FramePattern(NamedTuple):
    """What a frame means, if fewer than `max_depth` frames are inside it."""

    file: re.Pattern[str]
    function: re.Pattern[str]
    kind: LocationKind
    max_depth: int


class _FramePatterns:
    """Patterns in the order in which they are tried.

    The stacks of a job show few functions, again and again: each is searched once.
    """

    def __init__(self, *patterns: _FramePattern) -> None:
        self._patterns = patterns
        self._matching = lru_cache(maxsize=4096)(self._search)

    def _search(self, file: str, function: str) -> tuple[_FramePattern, ...]:
        name = function.rpartition(".")[2]
        found = (one for one in self._patterns if one.file.search(file))
        return tuple(one for one in found if one.function.search(name))

    def matching(self, frame: wire.TraceFrame) -> tuple[_FramePattern, ...]:
        """Those that match a frame, at any depth."""
        return self._matching(frame.file, frame.function)

    def innermost(self, frames: Sequence[wire.TraceFrame]) -> tuple[int, LocationKind] | None:
        """Depth and meaning of the innermost matching frame."""
        for depth, frame in enumerate(frames):
            for pattern in self.matching(frame):
                if depth < pattern.max_depth:
                    return depth, pattern.kind
        return None


def _frame(
    file: str, kind: LocationKind, *, function: str = "", max_depth: int = 999
) -> _FramePattern:
    return _FramePattern(re.compile(file), re.compile(function), kind, max_depth)


_DEVICES: Final = r"torch/(cuda|accelerator|xpu|mps|mtia|npu)/|torch_npu/"
_DEVICE_CODE: Final = re.compile(rf"{_DEVICES}|/triton/")
_BACKWARD: Final = "_engine_run_backward"
_RPC: Final = r"torch/distributed/rpc/api\.py$"
_FRAMES: Final = _FramePatterns(
    # Retries until it has the lock, as when one rank of a host compiles for all.
    _frame(r"/filelock/|torch/utils/_filelock", "file_lock", max_depth=4),
    # Polls a file that the builder of an extension removes, unless it was killed.
    _frame(r"torch/utils/file_baton\.py$", "build_lock", function="^wait$", max_depth=2),
    _frame(r"torch/utils/data", "dataloader", max_depth=12),
    _frame(
        r"torch/distributed/(distributed_c10d|c10d_logger|_functional_collectives|nn/functional)",
        "collective",
    ),
    # Our own wrapper around a handle's wait.
    _frame(r"frtop_probe/recorder/ops/waits\.py$", "collective", max_depth=2),
    _frame(_RPC, "rpc", function="^rpc_sync$", max_depth=1),
    # Not all of elastic: its frames are outermost in every program that it starts.
    _frame(r"torch/distributed/(rendezvous\.py$|elastic/(rendezvous|utils)/)", "store"),
    _frame("", "backward", function=_BACKWARD),
    _frame(_DEVICES, "device", function="^(synchronize|empty_cache)$"),
    # This leaves out files that only run compiled code.
    _frame(r"torch/_inductor/(?!output_code|utils|cudagraph_trees|runtime/)", "compiling"),
    _frame(r"torch/_dynamo/(convert_frame|output_graph|symbolic_convert)\.py$", "compiling"),
    _frame(r"torch/_dynamo", "compiling", max_depth=3),
    _frame(r"^<frozen importlib", "importing", max_depth=3),
)
"""Library frames; the innermost frame that matches decides."""
_OUTER_FRAMES: Final = _FramePatterns(
    _frame(r"/(subprocess|multiprocess(?:ing)?/popen_\w+)\.py$", "child", max_depth=4),
    _frame(r"/python3[^/]*/(pdb|bdb|cmd|code)\.py$|/(IPython|ipdb|pdbpp)/", "input", max_depth=8),
)
"""Tried after `_FRAMES`: compilers start processes, too."""
_LEAVES: Final = _FramePatterns(
    _frame(
        r"/(pathlib(/_local|/__init__)?|shutil|gzip|bz2|lzma|zipfile|tarfile|tempfile)\.py$",
        "file_io",
    ),
    _frame(r"/(torch/serialization|numpy/lib/[_\w]*npyio[_\w]*)\.py$", "file_io"),
    _frame(r"/(threading|queue|multiprocess(?:ing)?/synchronize)\.py$", "lock"),
    _frame(r"/(socket|ssl|http/client|selectors)\.py$", "socket"),
)
"""Tried last, and against the innermost frame only."""

QUEUE_GET: Final = re.compile(r"\.get\(")
"""A thread asleep in a futex at such a line waits at a queue in C, without a frame."""
_RECEIVES: Final = re.compile(r"\.recv(_into|from|msg)?\(")
_MESSAGE_QUEUE: Final = re.compile(r"/device_communicators/shm_broadcast\.py$")
_COMPILED_FRAMES: Final = 3
"""Code that a compiler has made may have as many frames of dynamo inside it."""
_DEVICE_WAIT_FRAMES: Final = 3
"""`synchronize` enters a context of its device."""
_MESSAGE_QUEUE_FRAMES: Final = 6
"""From a worker's loop to the innermost frame of its message queue."""
_SERVERS: Final = re.compile(r"/(asyncio/(base_events|runners|unix_events)|socketserver)\.py$")

_LINES: Final[tuple[tuple[re.Pattern[str], LocationKind], ...]] = (
    (re.compile(r"\.is_completed\("), "collective"),  # in a loop
    (re.compile(r"\bsleep\s*\("), "sleeping"),
    (re.compile(r"\binput\(|\bsys\.stdin\b"), "input"),
    (re.compile(r"\bos\.wait\w*\("), "child"),
    (re.compile(r"store(\(\))?\.(wait|get|multi_get)\(", re.IGNORECASE), "key"),
    (re.compile(r"\b(flock|lockf)\("), "file_lock"),
    (re.compile(r"\.accept\("), "idle"),
    (re.compile(r"\.to_here\(|\brpc_async\(.*\.wait\("), "rpc"),
    # Events and conditions have their own Python frames. A `wait` in C++ is a Work's.
    (re.compile(r"\.wait\("), "collective"),
    # An event is queried in a loop.
    (re.compile(r"synchronize\(\)|\.(item|cpu|tolist|query)\(\)"), "device"),
    (re.compile(r"\.(read(line|lines|into)?|write|flush|fsync)\(|\bopen\("), "file_io"),
    (re.compile(r"np\.load|torch\.(load|save)"), "file_io"),
    (re.compile(r"\.(acquire|join|result)\(|\bwith\b.*lock", re.IGNORECASE), "lock"),
)


def system_call(process: wire.Process | None) -> str:
    """The system call that the main thread is in, "" if not known."""
    return process.syscall.partition(" ")[0] if process is not None else ""


def is_polling(process: wire.Process | None) -> bool:
    """Whether the main thread waits for an answer, as a store's client does."""
    return system_call(process) in _POLL_CALLS


def is_asleep_on_lock(process: wire.Process | None) -> bool:
    """Whether the main thread sleeps in a futex: a lock, a condition, or a wait inside gloo."""
    if process is None or process.state not in ("S", "I"):
        return False
    return "futex" in process.wchan or system_call(process) == "futex"


# Asked many times about the same stacks, which keep their hashes: a quarter of a judgement.
@lru_cache(maxsize=1024)
def locate(stack: wire.ThreadStack | None, process: wire.Process | None = None) -> StackLocation:
    """Where a thread is, by its stack; without one, by the kernel."""
    if stack is None or not stack.frames:
        return StackLocation(_kernel_kind(process), sure=False)
    frames = in_backward(stack.frames)
    leaf = frames[0]
    line = line_and_function(user_frame(frames))
    kind = _library_kind(frames) or _line_kind(leaf)
    shown = shown_frames(frames)[0]
    if _waits_for_file_lock(process) and kind != "dataloader" and kind not in OP_WAITS:
        return StackLocation("file_lock", line, shown)
    # A server wakes to see whether it is to end: at that moment its thread is active.
    finished = serves_rpc(frames) and not stack.active
    if serves(frames) or finished or _awaits_engine(frames):
        return StackLocation("idle", line, shown)
    if kind is not None:
        return StackLocation(_corrected(kind, leaf, process), line, shown)
    if stack.active or stack.owns_gil:
        return StackLocation("computing", line, shown)
    queued = bool(QUEUE_GET.search(leaf.source))
    by_line = queued and process is None  # a file of stacks has only the line
    at = "lock" if by_line else _kernel_kind(process)
    if at == "unknown" and is_polling(process) and _RECEIVES.search(leaf.source):
        at = "socket"  # with a timeout; without one, the kernel shows it
    return StackLocation(at, line, shown, sure=by_line or (queued and is_asleep_on_lock(process)))


def serves(frames: Sequence[wire.TraceFrame]) -> bool:
    """Whether the innermost frames wait for any event or client, not for one connection."""
    leaf = frames[0]
    if leaf.file.endswith("/selectors.py"):
        return any(_SERVERS.search(frame.file) for frame in frames[1:3])
    accepts = leaf.file.endswith("/socket.py") and function_name(leaf) == "accept"
    return accepts or bool(_SERVERS.search(leaf.file))


def serves_rpc(frames: Sequence[wire.TraceFrame]) -> bool:
    """Whether a thread has finished, and only waits until no rank has calls left."""
    return any(
        function_name(frame) == "shutdown" and re.search(_RPC, frame.file) for frame in frames
    )


def waits_for_device(frames: Sequence[wire.TraceFrame]) -> bool:
    """Whether torch's own frames show a wait for a device, asleep or spinning."""
    innermost = frames[:_DEVICE_WAIT_FRAMES]
    return any(p.kind == "device" for frame in innermost for p in _FRAMES.matching(frame))


def compiles(frames: Sequence[wire.TraceFrame]) -> bool:
    """Whether a compiler is on the stack: it may run measurements on the device."""
    return any(
        p.kind == "compiling" and p.max_depth > _COMPILED_FRAMES
        for frame in frames
        for p in _FRAMES.matching(frame)
    )


def shows_device(frames: Sequence[wire.TraceFrame]) -> bool:
    """Whether device code is on the stack: then the job has a device."""
    return any(_DEVICE_CODE.search(frame.file) for frame in frames)


def in_backward(frames: tuple[wire.TraceFrame, ...]) -> tuple[wire.TraceFrame, ...]:
    """The frames of program code that a backward pass runs: a hook, a custom `Function`.

    All frames, if it runs none: then the thread is in the pass itself.
    """
    for depth, frame in enumerate(frames):
        if function_name(frame) == _BACKWARD and not is_wrapper(frame):
            inner = frames[:depth]
            return inner if any(map(is_user_code, inner)) else frames
    return frames


def line_and_function(frame: wire.TraceFrame) -> str:
    """`train.py:214 (main)`."""
    return f"{frame_line(frame)} ({frame.function})"


def function_name(frame: wire.TraceFrame) -> str:
    """`accept` for `socket.accept`: newer Python versions report qualified names."""
    return frame.function.rpartition(".")[2]


def _library_kind(frames: tuple[wire.TraceFrame, ...]) -> LocationKind | None:
    """What the innermost frame of a known library means, if there is one."""
    if (found := _FRAMES.innermost(frames)) is not None:
        depth, kind = found
        rendezvous = kind == "collective" and _is_rendezvous(frames[: depth + 3])
        return "store" if rendezvous else kind
    found = _OUTER_FRAMES.innermost(frames) or _LEAVES.innermost(frames[:1])
    return found[1] if found is not None else None


def _is_rendezvous(frames: tuple[wire.TraceFrame, ...]) -> bool:
    names = {function_name(frame) for frame in frames}
    return bool(names & {"init_process_group", "_store_based_barrier", "_new_process_group_helper"})


def _awaits_engine(frames: tuple[wire.TraceFrame, ...]) -> bool:
    """Whether a vLLM worker waits at its message queue for its engine."""
    innermost = frames[:_MESSAGE_QUEUE_FRAMES]
    return any(function_name(frame) == "worker_busy_loop" for frame in innermost) and any(
        _MESSAGE_QUEUE.search(frame.file) for frame in innermost
    )


def _corrected(
    kind: LocationKind, leaf: wire.TraceFrame, process: wire.Process | None
) -> LocationKind:
    """The kind that a line suggests, corrected by the kernel: a file may be a pipe."""
    if kind == "collective" and _line_kind(leaf) == kind:
        return _other_end(process) or ("key" if is_polling(process) else kind)
    if kind in ("file_io", "lock", "socket"):
        return _other_end(process) or kind
    return kind


def _other_end(process: wire.Process | None) -> LocationKind | None:
    """What the main thread waits for outside the process, as far as the kernel shows it."""
    call = system_call(process)
    if process is None or process.state == "R":
        return None
    if call in _CHILD_CALLS or process.wchan == "do_wait":
        return "child"
    if call in _STREAM_CALLS and process.file.startswith("pipe:"):
        return "pipe"
    if call in _STREAM_CALLS and process.file.startswith(_TERMINALS):
        return "input"
    return None


def _waits_for_file_lock(process: wire.Process | None) -> bool:
    if process is None or process.state == "R":
        return False
    return system_call(process) in _LOCK_CALLS or bool(_LOCK_WAITS.search(process.wchan))


def _line_kind(leaf: wire.TraceFrame) -> LocationKind | None:
    """What the text of the innermost line means: a C call there has no frame."""
    return next((kind for text, kind in _LINES if text.search(leaf.source)), None)


def _kernel_kind(process: wire.Process | None) -> LocationKind:
    if process is None:
        return "unknown"
    if (end := _other_end(process)) is not None:
        return end
    call = system_call(process)
    on_file = call in _FILE_CALLS and process.file.startswith("/")
    signs: tuple[tuple[bool, LocationKind], ...] = (
        (call in _SLEEP_CALLS or "nanosleep" in process.wchan, "sleeping"),
        (_waits_for_file_lock(process), "file_lock"),
        (process.state == "D" or call in _PATH_CALLS or on_file, "file_io"),
        (call in _SERVER_CALLS, "idle"),
        (call in _SOCKET_CALLS or process.file.startswith("socket:"), "socket"),
        (process.state == "R", "computing"),
        (is_asleep_on_lock(process), "lock"),
    )
    return next((kind for shown, kind in signs if shown), "unknown")

"""Where a thread is, told from its stack and from what /proc says of its process.

py-spy shows Python frames only: a C call (`time.sleep`, `lock.acquire`, `read`) is the
line that makes it. So the text of that line and the kernel's view complete each other.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from frtop_probe import wire

Kind = Literal[
    "collective",  # inside a c10d call or the wait for one
    "backward",  # the autograd engine runs, or waits for the gradient reducer
    "device",  # waits for a device to finish
    "store",  # rendezvous: waits for the key-value store
    "dataloader",
    "file_io",
    "sleeping",
    "lock",
    "socket",
    "compiling",
    "importing",
    "computing",
    "unknown",
]

WAITS: Final = frozenset({"collective", "backward", "device", "store"})
"""Kinds in which a thread that is asleep may be blocked in an op."""


@dataclass(frozen=True, slots=True)
class Place:
    """What a thread is doing, and the user's own line that led there."""

    kind: Kind
    line: str = ""  # "train.py:214 (main)"
    leaf: wire.TraceFrame | None = None
    sure: bool = True  # False: only the kernel said so, a wait in C++ looks the same


_SYSCALLS: Final = {
    "0": "read", "1": "write", "7": "poll", "17": "pread64", "18": "pwrite64", "19": "readv",
    "23": "select", "35": "nanosleep", "42": "connect", "43": "accept", "44": "sendto",
    "45": "recvfrom", "47": "recvmsg", "61": "wait4", "73": "flock", "74": "fsync",
    "202": "futex", "230": "clock_nanosleep", "232": "epoll_wait", "257": "openat",
    "270": "pselect6", "271": "ppoll", "281": "epoll_pwait",
}  # fmt: skip
_FILE_CALLS: Final = frozenset(
    [
        "read",
        "pread64",
        "readv",
        "preadv",
        "write",
        "pwrite64",
        "writev",
        "fsync",
        "fdatasync",
        "openat",
        "open",
        "stat",
        "newfstatat",
        "statx",
        "getdents64",
        "unlink",
        "rename",
        "mmap",
        "msync",
        "flock",
    ]
)
_PATH_CALLS: Final = frozenset(
    [
        "openat",
        "open",
        "stat",
        "newfstatat",
        "statx",
        "getdents64",
        "unlink",
        "rename",
        "fsync",
        "fdatasync",
        "flock",
    ]
)
"""Calls that are about a file whatever their descriptor is said to be."""
_SOCKET_CALLS: Final = frozenset(
    [
        "connect",
        "accept",
        "accept4",
        "recvfrom",
        "recvmsg",
        "sendto",
        "sendmsg",
        "epoll_wait",
        "epoll_pwait",
    ]
)
_SLEEP_CALLS: Final = frozenset({"nanosleep", "clock_nanosleep"})

_LIBRARY: Final = re.compile(r"(/torch/|/site-packages/|/dist-packages/|/lib/python3|^<frozen)")
_COLLECTIVE: Final = re.compile(
    r"torch/distributed/(distributed_c10d|c10d_logger|_functional_collectives|nn/functional)"
)
_SLEEP_TEXT: Final = re.compile(r"\bsleep\s*\(")
_LOCK_TEXT: Final = re.compile(
    r"\.acquire\(|\.join\(|\.wait\(|\bwith\b.*lock|\.result\(", re.IGNORECASE
)
_FILE_TEXT: Final = re.compile(
    r"\.(read|readline|readlines|readinto|write|flush|fsync)\(|\bopen\(|np\.load|torch\.(load|save)"
    r"|flock\("
)


def system_call(process: wire.Process | None) -> str:
    """Name of the system call a process's main thread sits in, "" if not known."""
    if process is None or not process.syscall:
        return ""
    first = process.syscall.split()[0]
    return _SYSCALLS.get(first, first)


def is_asleep_on_lock(process: wire.Process | None) -> bool:
    """Main thread asleep in a futex: a lock, a condition, or the wait inside gloo."""
    if process is None or process.state not in ("S", "I"):
        return False
    return "futex" in process.wchan or system_call(process) == "futex"


def classify(stack: wire.ThreadStack | None, process: wire.Process | None = None) -> Place:
    """The place of a thread; without a stack, what the kernel alone lets us say."""
    if stack is None or not stack.frames:
        return Place(_kernel_kind(process), sure=False)
    frames = stack.frames
    leaf = frames[0]
    line = place_line(own_frame(frames))
    kind = _library_kind(frames) or _line_kind(leaf)
    if kind is not None:
        return Place(kind, line, leaf)
    if stack.active or stack.owns_gil:
        return Place("computing", line, leaf)
    return Place(_kernel_kind(process), line, leaf, sure=False)


def own_frame(frames: Sequence[wire.TraceFrame]) -> wire.TraceFrame:
    """The innermost frame of the user's own code, else the innermost one."""
    return next((frame for frame in frames if not _LIBRARY.search(frame.file)), frames[0])


def place_line(frame: wire.TraceFrame) -> str:
    return f"{short_file(frame.file)}:{frame.line} ({frame.function})"


def short_file(path: str) -> str:
    """The last two parts of a path inside a library, the last one of one's own file."""
    parts = path.split("/")
    return "/".join(parts[-2:]) if _LIBRARY.search(path) else parts[-1]


def _library_kind(frames: tuple[wire.TraceFrame, ...]) -> Kind | None:
    """What the frames of known libraries say, innermost first."""
    for depth, frame in enumerate(frames):
        file, function = frame.file, frame.function
        if "torch/utils/data" in file and depth < 12:
            return "dataloader"
        if _COLLECTIVE.search(file):
            return "store" if _is_rendezvous(frames[: depth + 3]) else "collective"
        if "torch/distributed/rendezvous" in file or "torch/distributed/elastic" in file:
            return "store"
        if "_engine_run_backward" in function:
            return "backward"
        if function == "synchronize" and ("torch/cuda" in file or "torch/accelerator" in file):
            return "device"
        if "torch/_inductor" in file or ("torch/_dynamo" in file and depth < 3):
            return "compiling"
        if file.startswith("<frozen importlib") and depth < 3:
            return "importing"
    leaf = frames[0].file
    if leaf.endswith(("/threading.py", "/queue.py", "/multiprocessing/synchronize.py")):
        return "lock"
    if leaf.endswith(("/socket.py", "/ssl.py", "/http/client.py", "/selectors.py")):
        return "socket"
    return None


def _is_rendezvous(frames: tuple[wire.TraceFrame, ...]) -> bool:
    names = {frame.function for frame in frames}
    return bool(names & {"init_process_group", "_store_based_barrier", "_new_process_group_helper"})


def _line_kind(leaf: wire.TraceFrame) -> Kind | None:
    """What the text of the innermost line says: the C call made there has no frame."""
    source = leaf.source
    if not source:
        return None
    if _SLEEP_TEXT.search(source):
        return "sleeping"
    if ".wait()" in source and ("work" in source.lower() or "handle" in source.lower()):
        return "collective"
    if "synchronize()" in source:
        return "device"
    if _FILE_TEXT.search(source):
        return "file_io"
    if _LOCK_TEXT.search(source):
        return "lock"
    return None


def _kernel_kind(process: wire.Process | None) -> Kind:
    if process is None:
        return "unknown"
    call = system_call(process)
    if call in _SLEEP_CALLS or "nanosleep" in process.wchan:
        return "sleeping"
    on_file = call in _FILE_CALLS and process.file.startswith("/")
    if process.state == "D" or call in _PATH_CALLS or on_file:
        return "file_io"
    if call in _SOCKET_CALLS or process.file.startswith("socket:"):
        return "socket"
    if process.state == "R":
        return "computing"
    if is_asleep_on_lock(process):
        return "lock"
    return "unknown"

"""Where a thread is, told from its stack and from what /proc says of its process.

py-spy shows Python frames only: a C call (`time.sleep`, `lock.acquire`, `read`) is the
line that makes it. So the text of that line and the kernel's view complete each other.
"""

from __future__ import annotations

import re
from typing import Final, Literal

from msgspec import Struct

from frtop_probe import wire
from frtop_tui.job.stack_frames import frame_line, user_frame

Kind = Literal[
    "collective",  # inside a c10d call or the wait for one
    "backward",  # the autograd engine runs, or waits for the gradient reducer
    "device",  # waits for a device to finish
    "store",  # rendezvous: waits for the key-value store
    "dataloader",
    "file_io",
    "file_lock",  # waits for another process to let go of a locked file
    "sleeping",
    "lock",
    "socket",
    "idle",  # an event loop or a listening socket with nothing to do
    "child",  # waits for a process that it has started
    "pipe",  # at a full pipe that nobody reads, or an empty one that nobody writes to
    "input",  # waits for its standard input, or for somebody to type into a debugger
    "key",  # waits for a key of a store, outside of torch's own calls
    "compiling",
    "importing",
    "computing",
    "unknown",
]

WAITS: Final = frozenset({"collective", "backward", "device", "store"})
"""Kinds in which a thread that is asleep may be blocked in an op."""


FILES: Final = frozenset({"file_io", "file_lock"})
"""Kinds that are about a file, which the kernel often names."""


class Place(Struct, frozen=True):
    """What a thread is doing, and the user's own line that led there."""

    kind: Kind
    line: str = ""  # "train.py:214 (main)"
    leaf: wire.TraceFrame | None = None
    sure: bool = True  # False: only the kernel said so, a wait in C++ looks the same


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
    ]
)
"""Calls that are about a file whatever their descriptor is said to be."""
_FILE_CALLS: Final = _PATH_CALLS | frozenset(
    ["read", "pread64", "readv", "preadv", "write", "pwrite64", "writev", "mmap", "msync"]
)
_SOCKET_CALLS: Final = frozenset(
    [
        "connect",
        "recvfrom",
        "recvmsg",
        "sendto",
        "sendmsg",
    ]
)
_SERVER_CALLS: Final = frozenset({"accept", "accept4", "epoll_wait", "epoll_pwait", "epoll_pwait2"})
"""Where main threads of servers sleep; ops of ours wait in a futex, or poll for a store."""
_LOCK_CALLS: Final = frozenset({"flock", "fcntl"})
"""`fcntl` blocks for F_SETLKW only."""
_LOCK_WAITS: Final = re.compile(r"locks_lock_inode_wait|flock_lock|posix_lock|setlk|lock_file_wait")
_CHILD_CALLS: Final = frozenset({"wait4", "waitid"})
_STREAM_CALLS: Final = frozenset({"read", "readv", "write", "writev"})
_TERMINALS: Final = ("/dev/pts/", "/dev/tty")
_POLL_CALLS: Final = frozenset({"poll", "ppoll"})
"""How a store waits for its answer; gloo waits in a futex."""
_SLEEP_CALLS: Final = frozenset({"nanosleep", "clock_nanosleep"})

_ANY: Final = re.compile("")
_Sign = tuple[int, re.Pattern[str], re.Pattern[str], Kind]


def _frame(file: str, kind: Kind, *, function: str = "", reach: int = 999) -> _Sign:
    return (reach, re.compile(file), re.compile(function) if function else _ANY, kind)


_FRAMES: Final[tuple[_Sign, ...]] = (
    # Locks files by trying again and again; what compiles for all ranks of a host does, too.
    _frame(r"/filelock/|torch/utils/_filelock", "file_lock", reach=4),
    _frame(r"torch/utils/data", "dataloader", reach=12),
    _frame(
        r"torch/distributed/(distributed_c10d|c10d_logger|_functional_collectives|nn/functional)",
        "collective",
    ),
    # Not all of elastic: programs that it starts have it outermost.
    _frame(r"torch/distributed/(rendezvous\.py$|elastic/(rendezvous|utils)/)", "store"),
    _frame("", "backward", function="_engine_run_backward"),
    _frame(r"torch/(cuda|accelerator)", "device", function="^synchronize$"),
    # Not what only runs the compiled code.
    _frame(r"torch/_inductor/(?!output_code|utils|cudagraph_trees|runtime/)", "compiling"),
    _frame(r"torch/_dynamo/(convert_frame|output_graph|symbolic_convert)\.py$", "compiling"),
    _frame(r"torch/_dynamo", "compiling", reach=3),
    _frame(r"^<frozen importlib", "importing", reach=3),
)
"""How deep a frame may lie, its file, its function, and what it means."""
_OUTSIDE: Final[tuple[_Sign, ...]] = (
    _frame(r"/(subprocess|multiprocessing/popen_\w+)\.py$", "child", reach=4),
    _frame(r"/python3[^/]*/(pdb|bdb|cmd|code)\.py$|/(IPython|ipdb|pdbpp)/", "input", reach=8),
)
"""The same, where none of `_FRAMES` is: compilers start processes, too."""
_LEAVES: Final[tuple[_Sign, ...]] = (
    _frame(
        r"/(pathlib(/_local|/__init__)?|shutil|gzip|bz2|lzma|zipfile|tarfile|tempfile)\.py$",
        "file_io",
    ),
    _frame(r"/(torch/serialization|numpy/lib/[_\w]*npyio[_\w]*)\.py$", "file_io"),
    _frame(r"/(threading|queue|multiprocessing/synchronize)\.py$", "lock"),
    _frame(r"/(socket|ssl|http/client|selectors)\.py$", "socket"),
)
"""What the innermost frame means when nothing around it says more."""

GETS: Final = re.compile(r"\.get\(")
"""Asleep in a futex there, a thread waits at a queue in C, which has no frame of its own."""
_SERVERS: Final = re.compile(r"/(asyncio/(base_events|runners|unix_events)|socketserver)\.py$")

_LINES: Final[tuple[tuple[re.Pattern[str], Kind], ...]] = (
    (re.compile(r"\.is_completed\("), "collective"),  # asks again and again
    (re.compile(r"\bsleep\s*\("), "sleeping"),
    (re.compile(r"\binput\(|\bsys\.stdin\b"), "input"),
    (re.compile(r"\bos\.wait\w*\("), "child"),
    (re.compile(r"store(\(\))?\.(wait|get|multi_get)\(", re.IGNORECASE), "key"),
    (re.compile(r"\b(flock|lockf)\("), "file_lock"),
    (re.compile(r"\.accept\("), "idle"),
    # Events and conditions wait in Python frames of their own; what waits right here in C++
    # is a Work, whatever the program calls it.
    (re.compile(r"\.wait\("), "collective"),
    (re.compile(r"synchronize\(\)|\.(item|cpu|tolist)\(\)"), "device"),
    (
        re.compile(
            r"\.(read|readline|readlines|readinto|write|flush|fsync)\(|\bopen\(|np\.load"
            r"|torch\.(load|save)"
        ),
        "file_io",
    ),
    (
        re.compile(r"\.(acquire|join|result)\(|\bwith\b.*lock", re.IGNORECASE),
        "lock",
    ),
)


def system_call(process: wire.Process | None) -> str:
    """Name of the system call a process's main thread sits in, "" if not known."""
    if process is None or not process.syscall:
        return ""
    return process.syscall.split()[0]


def polls(process: wire.Process | None) -> bool:
    """Main thread waits for an answer, as a store's client does."""
    return system_call(process) in _POLL_CALLS


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
    line = place_line(user_frame(frames))
    kind = _library_kind(frames) or _line_kind(leaf)
    if _waits_for_file_lock(process) and kind != "dataloader" and kind not in WAITS:
        return Place("file_lock", line, leaf)
    if _serves(frames) and not stack.active:
        return Place("idle", line, leaf)
    if kind is not None:
        return Place(_put_right(kind, leaf, process), line, leaf)
    if stack.active or stack.owns_gil:
        return Place("computing", line, leaf)
    queued = bool(GETS.search(leaf.source)) and is_asleep_on_lock(process)
    return Place(_kernel_kind(process), line, leaf, sure=queued)


def place_line(frame: wire.TraceFrame) -> str:
    """`train.py:214 (main)`."""
    return f"{frame_line(frame)} ({frame.function})"


def bare_name(frame: wire.TraceFrame) -> str:
    """`accept` of `socket.accept`: newer Pythons give functions their full names."""
    return frame.function.rpartition(".")[2]


def _library_kind(frames: tuple[wire.TraceFrame, ...]) -> Kind | None:
    """What the frames of known libraries say, the innermost known one first."""
    for depth, frame in enumerate(frames):
        for reach, file, function, kind in _FRAMES:
            if depth < reach and file.search(frame.file) and function.search(bare_name(frame)):
                rendezvous = kind == "collective" and _is_rendezvous(frames[: depth + 3])
                return "store" if rendezvous else kind
    for depth, frame in enumerate(frames):
        for reach, file, _, kind in _OUTSIDE:
            if depth < reach and file.search(frame.file):
                return kind
    leaf = frames[0].file
    return next((kind for _, file, _, kind in _LEAVES if file.search(leaf)), None)


def _is_rendezvous(frames: tuple[wire.TraceFrame, ...]) -> bool:
    names = {bare_name(frame) for frame in frames}
    return bool(names & {"init_process_group", "_store_based_barrier", "_new_process_group_helper"})


def _serves(frames: tuple[wire.TraceFrame, ...]) -> bool:
    """Whether the innermost frames wait for events of a server, not for one connection."""
    leaf = frames[0]
    if leaf.file.endswith("/selectors.py"):
        return any(_SERVERS.search(frame.file) for frame in frames[1:3])
    accepts = leaf.file.endswith("/socket.py") and bare_name(leaf) == "accept"
    return accepts or bool(_SERVERS.search(leaf.file))


def _put_right(kind: Kind, leaf: wire.TraceFrame, process: wire.Process | None) -> Kind:
    """What a line says, in the light of what the kernel knows: a file may be a pipe."""
    if kind == "collective" and _line_kind(leaf) == kind:
        return _other_end(process) or ("key" if polls(process) else kind)
    if kind in ("file_io", "lock", "socket"):
        return _other_end(process) or kind
    return kind


def _other_end(process: wire.Process | None) -> Kind | None:
    """Who or what outside of the process it waits for, as far as the kernel tells."""
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


def _line_kind(leaf: wire.TraceFrame) -> Kind | None:
    """What the text of the innermost line says: the C call made there has no frame."""
    return next((kind for text, kind in _LINES if text.search(leaf.source)), None)


def _kernel_kind(process: wire.Process | None) -> Kind:
    if process is None:
        return "unknown"
    if (end := _other_end(process)) is not None:
        return end
    call = system_call(process)
    on_file = call in _FILE_CALLS and process.file.startswith("/")
    signs: tuple[tuple[bool, Kind], ...] = (
        (call in _SLEEP_CALLS or "nanosleep" in process.wchan, "sleeping"),
        (_waits_for_file_lock(process), "file_lock"),
        (process.state == "D" or call in _PATH_CALLS or on_file, "file_io"),
        (call in _SERVER_CALLS, "idle"),
        (call in _SOCKET_CALLS or process.file.startswith("socket:"), "socket"),
        (process.state == "R", "computing"),
        (is_asleep_on_lock(process), "lock"),
    )
    return next((kind for shown, kind in signs if shown), "unknown")

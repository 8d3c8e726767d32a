"""Reads the facts of one process from /proc, in an order that a stuck process cannot block.

`stat`, `wchan`, `comm`, `status` and the links never wait. `cmdline`, `environ` and `maps` take the
target's memory lock, which a thread in a device driver may hold forever. Only `read_blocking` reads
these; the caller may run it in a process that it can leave behind.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from frtop_probe.proc import pid_stat
from frtop_probe.proc.kernel_files import read_fields, read_text
from frtop_probe.proc.pid_stat import Stat
from frtop_probe.unprepared.discovery.claims import NAMES
from frtop_probe.unprepared.discovery.facts import DATA_WORKER, GROUP_THREADS, ProcessFacts

PROC: Final = "/proc"
MAX_THREADS: Final = 512
MAX_ARGV: Final = 16 << 10
"""Bytes of a command line: enough for the launcher's words and the script."""
MAX_ARGUMENTS: Final = 64
MAX_ENVIRON: Final = 1 << 20
MAX_MAPS: Final = 16 << 20
_CHUNK: Final = 64 << 10
_LIBTORCH: Final = (b"/libtorch_cpu.so", b"/libtorch.so", b"/libtorch_python.so")
_DRIVER_WAITS: Final = re.compile(
    r"_?nv|rm_|uvm_|os_acquire|amdgpu|kfd_|kgd|drm_|dma_(fence|resv)|ttm_|hl_|habana|xe_|i915|neuron"
    r"|ib_|mlx|efa_|uverbs|rdma|gdr|mmap|munmap|rwsem|down_(read|write)|.*_page_fault|.*user_addr_fault"
)
"""Kernel functions of device drivers, and of waits for the memory lock itself."""
_HIDDEN: Final = ("", "0")
_WHY: Final = {errno.EACCES: "no rights", errno.EPERM: "no rights"}


@dataclass(frozen=True, slots=True)
class Blocking:
    """What `read_blocking` read; None for values not requested or not readable."""

    argv: tuple[str, ...] | None = None
    environ: Mapping[str, str] | None = None
    torch: bool | None = None
    unread: tuple[str, ...] = field(default=())


BlockingReader = Callable[[int, tuple[str, ...]], Blocking]
"""Takes a pid and names among cmdline, environ and maps. Raises OSError if it gives up."""


def read_stat(folder: str) -> Stat | None:
    """Reads `folder`/stat; None if the process is gone or a zombie."""
    found = pid_stat.read(folder)
    return None if found is None or found.has_ended else found


def read_facts(
    pid: int, stat: Stat, uid: int, blocking: BlockingReader, proc: str = PROC
) -> ProcessFacts | None:
    """Reads everything that discovery needs of a process of this user; None if it is gone."""
    folder = f"{proc}/{pid}"
    facts = ProcessFacts(
        pid=pid,
        start_ticks=stat.start_ticks,
        parent=stat.parent,
        uid=uid,
        comm=stat.name,
        session=stat.session,
        threads=stat.threads,
        inner_pid=pid,
    )
    if stat.name == DATA_WORKER:  # inherits everything else from its rank
        return replace(facts, thread_names=frozenset((stat.name,)))
    unread: list[str] = []
    names, waits = _threads(folder, stat)
    program = os.path.basename(_link(f"{folder}/exe", unread))  # noqa: PTH119 - hot
    program = program.removesuffix(" (deleted)")
    facts = replace(facts, program=program, thread_names=names)
    if not _matters(facts):
        return replace(facts, unread=tuple(unread))
    facts = replace(
        facts,
        inner_pid=pid_stat.own_pid(folder) or pid,
        pid_namespace=_namespace(f"{folder}/ns/pid", unread),
        net_namespace=_namespace(f"{folder}/ns/net", unread),
    )
    if waits:
        unread.append(
            f"cmdline, environ, maps: a thread is in state D ({waits}), so a read might block"
        )
    else:
        facts = _with_blocking(facts, blocking, unread)
    return replace(facts, unread=tuple(dict.fromkeys(unread))) if _lives(folder, stat) else None


def is_rank_of_other(pid: int, stat: Stat, proc: str = PROC) -> bool:
    """Returns whether a process has a backend, by its thread names, which are public."""
    if stat.threads == 1:
        return False
    return any(GROUP_THREADS.match(name) for name in _threads(f"{proc}/{pid}", stat)[0])


def read_blocking(pid: int, names: tuple[str, ...], proc: str = PROC) -> Blocking:
    """Reads those of cmdline, environ and maps that are named. May wait forever."""
    found, unread = Blocking(), []
    for name in names:
        path = f"{proc}/{pid}/{name}"
        try:
            if name == "cmdline":
                found = replace(found, argv=parse_cmdline(_read(path, MAX_ARGV)))
            elif name == "environ":
                data = _read(path, MAX_ENVIRON)
                found = replace(found, environ=parse_environ(data))
                if data and not data.strip(b"\0"):
                    unread.append("environ: overwritten by the process title")
            else:
                found = replace(found, torch=_maps_torch(path))
        except OSError as error:
            unread.append(f"{name}: {_why(error)}")
    return replace(found, unread=tuple(unread))


def parse_cmdline(data: bytes) -> tuple[str, ...]:
    words = data.rstrip(b"\0").split(b"\0")[:MAX_ARGUMENTS]
    return tuple(word.decode("utf-8", "replace") for word in words) if words != [b""] else ()


def parse_environ(data: bytes, names: Collection[str] = NAMES) -> dict[str, str]:
    """Returns the variables in `names`; if a name occurs twice, the first value counts."""
    found: dict[str, str] = {}
    for entry in data.split(b"\0"):
        name, equals, value = entry.partition(b"=")
        if equals:
            word = name.decode("utf-8", "replace")
            if word in names:
                found.setdefault(word, value.decode("utf-8", "replace"))
    return found


def _matters(facts: ProcessFacts) -> bool:
    """Returns whether its command line and environment could make it part of a job."""
    return facts.is_python or facts.has_torch or "::" in facts.comm or not facts.program


def _with_blocking(facts: ProcessFacts, read: BlockingReader, unread: list[str]) -> ProcessFacts:
    first = _call(read, facts.pid, ("cmdline", "environ"), unread)
    facts = replace(facts, argv=first.argv or (), environ=first.environ or {})
    # Thread names say enough, and maps is the longest and slowest of the three.
    if facts.is_python and not facts.has_torch and not _timed_out(first):
        facts = replace(facts, torch=_call(read, facts.pid, ("maps",), unread).torch)
    return facts


def _timed_out(answer: Blocking) -> bool:
    return answer.argv is None and answer.environ is None


def _call(read: BlockingReader, pid: int, names: tuple[str, ...], unread: list[str]) -> Blocking:
    try:
        answer = read(pid, names)
    except OSError as error:
        answer = Blocking(unread=(f"{', '.join(names)}: {_why(error)}",))
    unread.extend(answer.unread)
    return answer


def _why(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time; the process may be stuck in a driver"
    return _WHY.get(error.errno or 0) or error.strerror or str(error)


def _threads(folder: str, stat: Stat) -> tuple[frozenset[str], str]:
    """Returns the names of all threads, and the wait that makes reading memory unsafe.

    If there are more than `MAX_THREADS`, it reads the first and the last ones: torch starts the
    threads of process groups after its large pools.
    """
    states = [(folder, stat)]
    if stat.threads > 1:
        try:
            ids = sorted(map(int, os.listdir(f"{folder}/task")))  # noqa: PTH208 - hot
        except OSError:
            ids = []
        if len(ids) > MAX_THREADS:
            ids = ids[: MAX_THREADS // 2] + ids[-MAX_THREADS // 2 :]
        paths = (f"{folder}/task/{tid}" for tid in ids)
        states += [(path, found) for path in paths if (found := read_stat(path)) is not None]
    waits = (_wait(path) for path, found in states if found.state == "D")
    return frozenset(found.name for _, found in states), next(filter(None, waits), "")


def _wait(folder: str) -> str:
    """Returns the kernel function of a wait that may hold the memory lock; "" for other waits."""
    name = read_text(f"{folder}/wchan", 256).strip()
    if name in _HIDDEN:
        return "wchan hidden"
    return f"wchan {name}" if _DRIVER_WAITS.match(name) else ""


def only_uid(folder: str) -> int | None:
    """Returns the user id; None if a process has ended or has ids of several users.

    Files of a process that may not be dumped belong to root, so these do not show its user.
    """
    ids = set(read_fields(f"{folder}/status").get("Uid", "").split())
    return int(ids.pop()) if len(ids) == 1 else None


def _namespace(path: str, unread: list[str]) -> int:
    match = re.search(r"\[(\d+)\]", _link(path, unread))
    return int(match[1]) if match else 0


def _link(path: str, unread: list[str]) -> str:
    try:
        return os.fsencode(os.readlink(path)).decode("utf-8", "replace")  # noqa: PTH115 - hot
    except OSError as error:
        if error.errno in _WHY:
            unread.append(f"{path.split('/', 3)[-1]}: {_why(error)}")
        return ""


def _maps_torch(path: str) -> bool:
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - unbuffered
        tail, read = b"", 0
        while read < MAX_MAPS and (data := file.read(_CHUNK)):
            read += len(data)
            text = tail + data
            if any(name in text for name in _LIBTORCH):
                return True
            tail = text[-64:]
    return False


def _read(path: str, limit: int) -> bytes:
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - unbuffered
        parts, size = [], 0
        while size < limit and (data := file.read(min(_CHUNK, limit - size))):
            parts.append(data)
            size += len(data)
    return b"".join(parts)


def _lives(folder: str, stat: Stat) -> bool:
    now = read_stat(folder)
    return now is not None and now.start_ticks == stat.start_ticks

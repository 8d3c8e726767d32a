"""What /proc says about a process, its threads and its children.

Only files that answer while the process hangs are read: `cmdline` and `environ` wait for
the target's memory lock, which a page fault on a dead file system may hold for ever.
Parsers are pure; readers return None or "" for what is gone or not ours to see.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from frtop_probe import wire
from frtop_probe.eyes import syscalls

PROC: Final = Path("/proc")
MAX_CHILDREN: Final = 64
MAX_THREADS: Final = 256
_NS_PER_TICK: Final = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_READ: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class Stat:
    """The fields of /proc/PID/stat that we use. `exit_status` is that of waitpid(2)."""

    pid: int
    name: str
    state: str
    parent: int
    cpu_ns: int
    threads: int
    start_ticks: int
    rss: int
    exit_status: int


def parse_stat(text: str) -> Stat:
    """Parses /proc/PID/stat, whose second field may hold blanks and parentheses.

    Raises:
        ValueError: it is no such line.
    """
    head, _, tail = text.rpartition(")")
    number, _, name = head.partition(" (")
    fields = tail.split()
    if len(fields) < 22:
        raise ValueError("not a line of /proc/PID/stat")
    return Stat(
        pid=int(number),
        name=name,
        state=fields[0],
        parent=int(fields[1]),
        cpu_ns=(int(fields[11]) + int(fields[12])) * _NS_PER_TICK,
        threads=int(fields[17]),
        start_ticks=int(fields[19]),
        rss=int(fields[21]) * _PAGE,
        exit_status=int(fields[49]) if len(fields) > 49 else 0,
    )


def parse_syscall(text: str) -> tuple[int, tuple[int, ...]] | None:
    """Number and arguments out of /proc/PID/syscall; None when it is not in a call."""
    words = text.split()
    try:
        number = int(words[0])
        arguments = tuple(int(word, 16) for word in words[1:7])
    except (ValueError, IndexError):
        return None  # "running", or nothing
    return (number, arguments) if number >= 0 else None


def parse_io(text: str) -> int:
    """Bytes read and written by system calls, cached or not; -1 when not told."""
    total = 0
    seen = 0
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name in ("rchar", "wchar") and value.strip().isdecimal():
            total += int(value)
            seen += 1
    return total if seen == 2 else -1


def parse_schedstat(text: str) -> int:
    """Parses /proc/PID/schedstat: ns that a thread ran or waited for its turn.

    The wait that it is in now is counted when it is over.

    Returns:
        -1 when it is unreadable, or this kernel does not count.
    """
    fields = text.split()
    if len(fields) != 3 or not all(field.isdecimal() for field in fields):
        return -1
    ran, waited, turns = map(int, fields)
    return ran + waited if turns else -1


def parse_wchan(text: str) -> str:
    """Where the kernel has put it to sleep; "" when it runs, or the kernel won't say."""
    name = text.strip()
    return "" if name == "0" else name


def read(path: str) -> str | None:
    """One small file of /proc; None when it is gone or not for us."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return os.read(descriptor, _READ).decode("utf-8", "replace")
    except OSError:
        return None
    finally:
        os.close(descriptor)


def stat(pid: int, proc: Path = PROC) -> Stat | None:
    text = read(f"{proc}/{pid}/stat")
    try:
        return parse_stat(text) if text else None
    except ValueError:
        return None


def process(pid: int, proc: Path = PROC) -> wire.Process | None:
    """A process as it is now; None when it is gone."""
    found = stat(pid, proc)
    if found is None:
        return None
    place = f"{proc}/{pid}"
    children = read(f"{place}/task/{pid}/children") or ""
    return _process(place, found, parse_io(read(f"{place}/io") or ""), len(children.split()))


def threads(pid: int, proc: Path = PROC) -> tuple[wire.Process, ...]:
    """The threads of a process, at most `MAX_THREADS`, by native id."""
    found = []
    for tid in tasks(pid, proc)[:MAX_THREADS]:
        place = f"{proc}/{pid}/task/{tid}"
        text = read(f"{place}/stat")
        try:
            state = parse_stat(text) if text else None
        except ValueError:
            continue
        if state is not None:
            found.append(_process(place, state, -1, 0))
    return tuple(found)


def children(pid: int, proc: Path = PROC) -> tuple[int, ...]:
    """Descendants of a process, breadth first, at most `MAX_CHILDREN`."""
    found: list[int] = []
    queue = [pid]
    while queue and len(found) < MAX_CHILDREN:
        parent = queue.pop(0)
        for tid in tasks(parent, proc):
            text = read(f"{proc}/{parent}/task/{tid}/children") or ""
            fresh = [int(word) for word in text.split() if word.isdecimal()]
            found += fresh
            queue += fresh
    return tuple(found[:MAX_CHILDREN])


def tasks(pid: int, proc: Path = PROC) -> list[int]:
    """Native ids of a process's threads, ascending; empty if it is gone."""
    try:
        return sorted(int(name) for name in os.listdir(f"{proc}/{pid}/task"))  # noqa: PTH208 - hot
    except OSError:
        return []


def _process(place: str, found: Stat, io_bytes: int, child_count: int) -> wire.Process:
    call = parse_syscall(read(f"{place}/syscall") or "")
    name = syscalls.name(call[0]) if call else ""
    return wire.Process(
        pid=found.pid,
        state=found.state,
        name=found.name,
        wchan=parse_wchan(read(f"{place}/wchan") or ""),
        syscall=name,
        file=_file(place, name, call[1]) if call else "",
        cpu_ns=found.cpu_ns,
        io_bytes=io_bytes,
        rss=found.rss,
        threads=found.threads,
        children=child_count,
        parent=found.parent,
        ready_ns=parse_schedstat(read(f"{place}/schedstat") or ""),
    )


def _file(place: str, call: str, arguments: tuple[int, ...]) -> str:
    """What a call's descriptor stands for. Reading the link never touches that file."""
    number = syscalls.descriptor(call, arguments)
    if number is None:
        return ""
    try:
        link = os.readlink(f"{place}/fd/{number}")  # noqa: PTH115 - on every tick
    except OSError:
        return ""
    return os.fsencode(link).decode("utf-8", "replace")  # names need not be UTF-8

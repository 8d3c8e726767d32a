"""Reads /proc: a process, its threads and its descendants.

Only files that answer while the process hangs are read. `cmdline` and `environ` wait for the
target's memory lock, which a page fault on a dead file system may hold for ever.
Parsers are pure; readers return None or "" when the process is gone or not readable.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from frtop_probe import wire
from frtop_probe.proc import pid_stat, syscalls

PROC: Final = Path("/proc")
MAX_CHILDREN: Final = 64
MAX_THREADS: Final = 256
_READ: Final = 64 * 1024


def parse_syscall(text: str) -> tuple[int, tuple[int, ...]] | None:
    """Parses /proc/PID/syscall into number and arguments; None when the thread is in no call."""
    words = text.split()
    try:
        number = int(words[0])
        arguments = tuple(int(word, 16) for word in words[1:7])
    except (ValueError, IndexError):
        return None  # "running", or empty
    return (number, arguments) if number >= 0 else None


def parse_io(text: str) -> int:
    """Parses /proc/PID/io into bytes read and written by system calls; -1 if unreadable."""
    total = 0
    seen = 0
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name in ("rchar", "wchar") and value.strip().isdecimal():
            total += int(value)
            seen += 1
    return total if seen == 2 else -1


def parse_schedstat(text: str) -> int:
    """Parses /proc/PID/schedstat: ns for which a thread ran or was ready to run.

    The kernel adds a wait only when it has ended.

    Returns:
        -1 when it is unreadable, or this kernel does not count.
    """
    fields = text.split()
    if len(fields) != 3 or not all(field.isdecimal() for field in fields):
        return -1
    ran, waited, turns = map(int, fields)
    return ran + waited if turns else -1


def parse_wchan(text: str) -> str:
    """Parses /proc/PID/wchan; "" when the thread runs, or the kernel hides the name."""
    name = text.strip()
    return "" if name == "0" else name


def read_file(path: str) -> str | None:
    """Reads a small file of /proc; None when it is gone or not readable."""
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


def read_stat(pid: int, proc: Path = PROC) -> pid_stat.Stat | None:
    return pid_stat.read(f"{proc}/{pid}")


def read_process(pid: int, proc: Path = PROC) -> wire.Process | None:
    """Reads a process's current state; None when it is gone."""
    return read_with_children(pid, proc)[0]


def read_with_children(pid: int, proc: Path = PROC) -> tuple[wire.Process | None, tuple[int, ...]]:
    """As `read_process`, and the pids of the children of its main thread."""
    found = read_stat(pid, proc)
    if found is None:
        return None, ()
    folder = f"{proc}/{pid}"
    words = (read_file(f"{folder}/task/{pid}/children") or "").split()
    io_bytes = parse_io(read_file(f"{folder}/io") or "")
    children = tuple(int(word) for word in words if word.isdecimal())
    return _process(folder, found, io_bytes, len(words)), children


def read_threads(pid: int, proc: Path = PROC) -> tuple[wire.Process, ...]:
    """Reads the threads of a process, at most `MAX_THREADS`, ordered by native id."""
    found = []
    for tid in thread_ids(pid, proc)[:MAX_THREADS]:
        folder = f"{proc}/{pid}/task/{tid}"
        if (state := pid_stat.read(folder)) is not None:
            found.append(_process(folder, state, -1, 0))
    return tuple(found)


def is_own(pid: int, proc: Path = PROC) -> bool:
    """Whether a process lives and is of this user alone.

    One that gained rights has ids of others, too.
    """
    return _ids(pid, proc) == {str(os.getuid())}


def is_others(pid: int, proc: Path = PROC) -> bool:
    """Whether a process lives and has ids of another user."""
    ids = _ids(pid, proc)
    return bool(ids) and ids != {str(os.getuid())}


def _ids(pid: int, proc: Path) -> set[str]:
    lines = (read_file(f"{proc}/{pid}/status") or "").splitlines()
    return next((set(line.split()[1:]) for line in lines if line.startswith("Uid:")), set())


def descendants(pid: int, proc: Path = PROC) -> tuple[int, ...]:
    """Pids of the descendants of a process, breadth first, at most `MAX_CHILDREN`.

    One that has become another user's is left alone, and so is what it has started.
    """
    found: list[int] = []
    queue = [pid]
    while queue and len(found) < MAX_CHILDREN:
        parent = queue.pop(0)
        for tid in thread_ids(parent, proc):
            text = read_file(f"{proc}/{parent}/task/{tid}/children") or ""
            named = (int(word) for word in text.split()[:MAX_CHILDREN] if word.isdecimal())
            fresh = [child for child in named if is_own(child, proc)]
            found += fresh
            queue += fresh
    return tuple(found[:MAX_CHILDREN])


def thread_ids(pid: int, proc: Path = PROC) -> list[int]:
    """Native thread ids of a process, ascending; empty if it is gone."""
    try:
        return sorted(int(name) for name in os.listdir(f"{proc}/{pid}/task"))  # noqa: PTH208 - hot
    except OSError:
        return []


def own_thread_ids(pid: int, proc: Path = PROC) -> dict[int, int]:
    """Native thread ids by those that the process itself knows; {} where both are the same.

    A process in another pid namespace, as in a container, has numbers of its own.
    """
    main = _own_id(read_file(f"{proc}/{pid}/status") or "")
    if main in (0, pid):
        return {}
    found = {_own_id(read_file(f"{proc}/{pid}/task/{tid}/status") or ""): tid
             for tid in thread_ids(pid, proc)}  # fmt: skip
    found.pop(0, None)
    return found


def _own_id(text: str) -> int:
    """The innermost number in /proc/PID/status, which is the process's own; 0 if unreadable."""
    line = next((line for line in text.splitlines() if line.startswith("NSpid:")), "")
    numbers = line.split()[1:]
    return int(numbers[-1]) if numbers and numbers[-1].isdecimal() else 0


def _process(folder: str, found: pid_stat.Stat, io_bytes: int, child_count: int) -> wire.Process:
    call = parse_syscall(read_file(f"{folder}/syscall") or "")
    name = syscalls.name(call[0]) if call else ""
    return wire.Process(
        pid=found.pid,
        state=found.state,
        name=found.name,
        wchan=parse_wchan(read_file(f"{folder}/wchan") or ""),
        syscall=name,
        file=_file(folder, name, call[1]) if call else "",
        cpu_ns=found.cpu_ns,
        io_bytes=io_bytes,
        rss=found.rss,
        threads=found.threads,
        children=child_count,
        parent=found.parent,
        ready_ns=parse_schedstat(read_file(f"{folder}/schedstat") or ""),
        exit_status=found.exit_status if found.has_ended else -1,
    )


def _file(folder: str, call: str, arguments: tuple[int, ...]) -> str:
    """The target of the call's file descriptor. Reading the link does not access that file."""
    number = syscalls.descriptor(call, arguments)
    if number is None:
        return ""
    try:
        link = os.readlink(f"{folder}/fd/{number}")  # noqa: PTH115 - on every tick
    except OSError:
        return ""
    return os.fsencode(link).decode("utf-8", "replace")  # file names need not be UTF-8

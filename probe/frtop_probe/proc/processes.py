"""Reads a process, its threads and its descendants from /proc, for the wire.

It reads only files that answer while the process hangs. `cmdline` and `environ` would wait for the
target's memory lock, which a page fault on a dead file system may hold for ever.
Parsers are pure; readers return None or "" when the process is gone or not readable.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from frtop_probe import wire
from frtop_probe.proc import pid_stat, syscalls
from frtop_probe.proc.kernel_files import named_numbers, read_fields, read_text

_PROC: Final = Path("/proc")
MAX_CHILDREN: Final = 64
MAX_THREADS: Final = 256


def parse_syscall(text: str) -> tuple[int, tuple[int, ...]] | None:
    """Parses /proc/PID/syscall into number and arguments; None when the thread is not in a call."""
    words = text.split()
    try:
        number = int(words[0])
        arguments = tuple(int(word, 16) for word in words[1:7])
    except (ValueError, IndexError):
        return None  # "running", or empty
    return (number, arguments) if number >= 0 else None


def parse_io(text: str) -> int:
    """Parses /proc/PID/io into bytes read and written by system calls; -1 if unreadable."""
    numbers = named_numbers(text)
    both = numbers.get("rchar"), numbers.get("wchar")
    return -1 if None in both else sum(filter(None, both))


def parse_schedstat(text: str) -> int:
    """Parses /proc/PID/schedstat: how many ns a thread ran or was ready to run.

    The kernel adds a wait only once it is over. -1: unreadable, or this kernel does not count.
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


def read_stat(pid: int, proc: Path = _PROC) -> pid_stat.Stat | None:
    return pid_stat.read(f"{proc}/{pid}")


def read_process(pid: int, proc: Path = _PROC) -> wire.Process | None:
    """Reads a process's current state; None when it is gone."""
    return read_with_children(pid, proc)[0]


def read_with_children(pid: int, proc: Path = _PROC) -> tuple[wire.Process | None, tuple[int, ...]]:
    """Like `read_process`, plus the pids of its main thread's children."""
    found = read_stat(pid, proc)
    if found is None:
        return None, ()
    folder = f"{proc}/{pid}"
    words = read_text(f"{folder}/task/{pid}/children").split()
    io_bytes = parse_io(read_text(f"{folder}/io"))
    children = tuple(int(word) for word in words if word.isdecimal())
    return _process(folder, found, io_bytes, len(words)), children


def read_threads(pid: int) -> tuple[wire.Process, ...]:
    """Reads the threads of a process, at most `MAX_THREADS`, ordered by native id."""
    found = []
    for tid in thread_ids(pid)[:MAX_THREADS]:
        folder = f"/proc/{pid}/task/{tid}"
        if (state := pid_stat.read(folder)) is not None:
            found.append(_process(folder, state, -1, 0))
    return tuple(found)


def is_own(pid: int, proc: Path = _PROC) -> bool:
    """Whether a process lives and has only this user's ids, so it has not gained rights."""
    return _ids(pid, proc) == {str(os.getuid())}


def is_others(pid: int) -> bool:
    """Whether a process lives and has another user's ids."""
    ids = _ids(pid, _PROC)
    return bool(ids) and ids != {str(os.getuid())}


def _ids(pid: int, proc: Path) -> set[str]:
    return set(read_fields(f"{proc}/{pid}/status").get("Uid", "").split())


def descendants(pid: int, proc: Path = _PROC) -> tuple[int, ...]:
    """Pids of the descendants of a process, breadth first, at most `MAX_CHILDREN`.

    Leaves out processes that now belong to another user, and their children.
    """
    found: list[int] = []
    queue = [pid]
    while queue and len(found) < MAX_CHILDREN:
        parent = queue.pop(0)
        for tid in thread_ids(parent, proc):
            text = read_text(f"{proc}/{parent}/task/{tid}/children")
            named = (int(word) for word in text.split()[:MAX_CHILDREN] if word.isdecimal())
            fresh = [child for child in named if is_own(child, proc)]
            found += fresh
            queue += fresh
    return tuple(found[:MAX_CHILDREN])


def thread_ids(pid: int, proc: Path = _PROC) -> list[int]:
    """Native thread ids of a process, ascending; empty if it is gone."""
    try:
        return sorted(int(name) for name in os.listdir(f"{proc}/{pid}/task"))  # noqa: PTH208 - hot
    except OSError:
        return []


def own_thread_ids(pid: int) -> dict[int, int]:
    """Native thread ids, by the ids that the process itself sees; {} if both are the same.

    They differ in another pid namespace, for instance in a container.
    """
    if pid_stat.own_pid(f"/proc/{pid}") in (0, pid):
        return {}
    found = {pid_stat.own_pid(f"/proc/{pid}/task/{tid}"): tid for tid in thread_ids(pid)}
    found.pop(0, None)
    return found


def _process(folder: str, found: pid_stat.Stat, io_bytes: int, child_count: int) -> wire.Process:
    call = parse_syscall(read_text(f"{folder}/syscall"))
    name = syscalls.name(call[0]) if call else ""
    return wire.Process(
        pid=found.pid,
        state=found.state,
        name=found.name,
        wchan=parse_wchan(read_text(f"{folder}/wchan")),
        syscall=name,
        file=_file(folder, name, call[1]) if call else "",
        cpu_ns=found.cpu_ns,
        io_bytes=io_bytes,
        rss=found.rss,
        threads=found.threads,
        children=child_count,
        parent=found.parent,
        ready_ns=parse_schedstat(read_text(f"{folder}/schedstat")),
        exit_status=found.exit_status if found.has_ended else -1,
    )


def _file(folder: str, call: str, arguments: tuple[int, ...]) -> str:
    """The file that the call works on. Reading the link does not access that file."""
    number = syscalls.descriptor(call, arguments)
    if number is None:
        return ""
    try:
        link = os.readlink(f"{folder}/fd/{number}")  # noqa: PTH115 - on every tick
    except OSError:
        return ""
    return os.fsencode(link).decode("utf-8", "replace")  # file names need not be UTF-8

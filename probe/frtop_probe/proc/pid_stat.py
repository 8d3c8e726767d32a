"""Reads /proc/PID/stat, of a process or a thread: who it is, its state and what it has used.

Reading it never waits for the process. A recorder reads its own, so this is standard library only.
"""

from __future__ import annotations

import os
from typing import Final, NamedTuple

from frtop_probe.proc.kernel_files import read_fields

_NS_PER_TICK: Final = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_MAX_LINE: Final = 4096


class Stat(NamedTuple):
    """One line, as in proc(5): times are in clock ticks, `pages` counts pages in memory.

    `waited_ticks` is the CPU time of reaped children, `exit_status` is as in waitpid(2).
    """

    pid: int
    name: str
    state: str
    parent: int
    session: int
    flags: int
    cpu_ticks: int
    waited_ticks: int
    threads: int
    start_ticks: int
    pages: int
    exit_status: int

    @property
    def has_ended(self) -> bool:
        """Whether it is a zombie, or about to vanish."""
        return self.state in "ZXx"

    @property
    def cpu_ns(self) -> int:
        return self.cpu_ticks * _NS_PER_TICK

    @property
    def rss(self) -> int:
        """Bytes in memory."""
        return self.pages * _PAGE


def parse(line: bytes) -> Stat | None:
    """Parses a line; None if it is malformed. The name may contain blanks and parentheses."""
    head, _, tail = line.rpartition(b")")
    pid, _, name = head.partition(b" (")
    fields = tail.split()
    try:
        return Stat(
            pid=int(pid),
            name=name.decode("utf-8", "replace"),
            state=fields[0].decode("ascii"),
            parent=int(fields[1]),
            session=int(fields[3]),
            flags=int(fields[6]),
            cpu_ticks=int(fields[11]) + int(fields[12]),
            waited_ticks=int(fields[13]) + int(fields[14]),
            threads=int(fields[17]),
            start_ticks=int(fields[19]),
            pages=int(fields[21]),
            exit_status=int(fields[49]) if len(fields) > 49 else 0,
        )
    except (IndexError, ValueError):
        return None


def read(folder: str | os.PathLike[str]) -> Stat | None:
    """Reads `folder`/stat; None when the process is gone or its line is not readable."""
    try:
        descriptor = os.open(f"{os.fspath(folder)}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return parse(os.read(descriptor, _MAX_LINE))
    except OSError:
        return None
    finally:
        os.close(descriptor)


def own_pid(folder: str) -> int:
    """The id of a process or thread in its own pid namespace; 0 if it is not readable."""
    numbers = read_fields(f"{folder}/status").get("NSpid", "").split()
    return int(numbers[-1]) if numbers else 0

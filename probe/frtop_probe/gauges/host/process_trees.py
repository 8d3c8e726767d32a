"""CPU time and memory of a rank with its children, such as loaders: /proc/PID/stat and children.

Only children of main threads are followed, as those of a DataLoader are: a rank has hundreds of
threads, and the children of each would be a file to read.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from frtop_probe.gauges.host.rates import Rates
from frtop_probe.gauges.host.subjects import SubjectReading, known
from frtop_probe.proc import pid_stat
from frtop_probe.proc.kernel_files import number, read_text

PAGE: Final = os.sysconf("SC_PAGE_SIZE")
MAX_PROCESSES: Final = 64
"""Of one rank."""


class TreeSource:
    """Ranks, each with its children: when one ends, its time stays in what its parent has."""

    def __init__(self, proc: Path, ticks_per_s: int, page_size: int = PAGE) -> None:
        self._proc = proc
        self._page_size = page_size
        self._ticks_per_s = ticks_per_s
        self._rates = Rates()

    def read(self, pids: Iterable[int], now_ns: int) -> Iterator[SubjectReading]:
        """A subject per rank that lives; `cpu` is in thousandths of a core, `mem` in bytes."""
        for pid in pids:
            ticks, pages, processes = self._tree(pid)
            if processes:
                thousandths = ticks * 1000 // self._ticks_per_s
                cpu = self._rates.per_second(pid, thousandths, now_ns)
                yield SubjectReading("rank", str(pid), known(
                    cpu=cpu, processes=processes, mem=pages * self._page_size or None
                ), pids=(pid,))  # fmt: skip

    def _tree(self, root: int) -> tuple[int, int, int]:
        total = pages = processes = 0
        waiting = [root]
        while waiting and processes < MAX_PROCESSES:
            pid = waiting.pop()
            found = pid_stat.read(f"{self._proc}/{pid}")
            if found is None:
                continue
            processes += 1
            total += found.cpu_ticks + found.waited_ticks
            pages += found.pages
            children = read_text(f"{self._proc}/{pid}/task/{pid}/children")
            waiting += filter(None, map(number, children.split()))
        return total, pages, processes

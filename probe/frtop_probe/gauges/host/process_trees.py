"""CPU time of a rank with its children, as those that load data: /proc/PID/stat and children.

Only children of main threads are followed, as those of a DataLoader are: a rank has hundreds of
threads, and the children of each would be a file to read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from frtop_probe.gauges.host.files import number, read_text
from frtop_probe.gauges.host.rates import Rates
from frtop_probe.gauges.host.subjects import SubjectReading, known

MAX_PROCESSES: Final = 64
"""Of one rank."""


def parse_ticks(text: str) -> tuple[int, int] | None:
    """Clock ticks of a process, and of its children that were waited for, of /proc/PID/stat."""
    fields = text.rpartition(")")[2].split()
    values = [number(field) for field in fields[11:15]]
    if len(values) < 4 or None in values:
        return None
    own, system, waited, waited_system = (value or 0 for value in values)
    return own + system, waited + waited_system


class TreeSource:
    """Ranks, each with its children: when one ends, its time stays in what its parent has."""

    def __init__(self, proc: Path, ticks_per_s: int) -> None:
        self._proc = proc
        self._ticks_per_s = ticks_per_s
        self._rates = Rates()

    def read(self, pids: Iterable[int], now_ns: int) -> Iterator[SubjectReading]:
        """A subject per rank that lives; `cpu` is in thousandths of a core."""
        for pid in pids:
            ticks, processes = self._tree(pid)
            if processes:
                thousandths = ticks * 1000 // self._ticks_per_s
                cpu = self._rates.per_second(pid, thousandths, now_ns)
                yield SubjectReading("rank", str(pid), known(cpu=cpu, processes=processes),
                                     pids=(pid,))  # fmt: skip

    def _tree(self, root: int) -> tuple[int, int]:
        total = processes = 0
        waiting = [root]
        while waiting and processes < MAX_PROCESSES:
            pid = waiting.pop()
            found = parse_ticks(read_text(f"{self._proc}/{pid}/stat", 4096))
            if found is None:
                continue
            processes += 1
            total += sum(found)
            children = read_text(f"{self._proc}/{pid}/task/{pid}/children")
            waiting += filter(None, map(number, children.split()))
        return total, processes

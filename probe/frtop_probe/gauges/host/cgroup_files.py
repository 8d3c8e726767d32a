"""What a cgroup may use and has used, in the files of version 1 and version 2.

A limit counts wherever it is set above a process. So of each kind the tightest of all levels is
told, with what is used, throttled and killed at that level.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from frtop_probe.proc.kernel_files import named_numbers, number, read_number, read_text

_NONE_V1: Final = 1 << 62
"""Version 1 writes no limit as a number near 2**63."""
_US: Final = 1000


@dataclass(frozen=True, slots=True)
class CpuLimit:
    """Of one level: thousandths of a core, periods, those in which it was held back."""

    thousandths: int | None
    periods: int | None
    throttled: int | None


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """Of one level: bytes that may be used, bytes that are, kills for want of memory."""

    limit: int | None
    used: int | None
    oom_kills: int | None


def parse_cpu_max(text: str) -> int | None:
    """Thousandths of a core of version 2's `cpu.max`: `100000 100000`, `max 100000`."""
    words = [number(word) for word in text.split()]
    if len(words) != 2 or words[0] is None or not words[1]:
        return None
    return 1000 * words[0] // words[1]


def cpu_limit(levels: Iterable[Path], *, version: int) -> CpuLimit:
    """The tightest limit of these levels, the process's own cgroup first."""
    found = [_cpu_v2(one) if version == 2 else _cpu_v1(one) for one in levels]
    set_ones = [one for one in found if one.thousandths is not None]
    tightest = min(set_ones, key=lambda one: one.thousandths or 0, default=None)
    return tightest or CpuLimit(None, None, None)


def memory_limit(levels: Iterable[Path], *, version: int) -> MemoryLimit:
    """The tightest limit of these levels; without one, what the process's own cgroup uses."""
    found = [_memory_v2(one) if version == 2 else _memory_v1(one) for one in levels]
    set_ones = [one for one in found if one.limit is not None]
    tightest = min(set_ones, key=lambda one: one.limit or 0, default=None)
    return tightest or (found[0] if found else MemoryLimit(None, None, None))


def used_ns(folder: Path, *, version: int) -> int | None:
    """CPU time of a cgroup with all below it, in ns."""
    if version == 1:
        return read_number(folder / "cpuacct.usage")
    used = named_numbers(read_text(folder / "cpu.stat")).get("usage_usec")
    return None if used is None else used * _US


def _cpu_v2(folder: Path) -> CpuLimit:
    stat = named_numbers(read_text(folder / "cpu.stat"))
    limit = parse_cpu_max(read_text(folder / "cpu.max"))
    return CpuLimit(limit, stat.get("nr_periods"), stat.get("nr_throttled"))


def _cpu_v1(folder: Path) -> CpuLimit:
    stat = named_numbers(read_text(folder / "cpu.stat"))
    quota = read_text(folder / "cpu.cfs_quota_us")
    period = read_text(folder / "cpu.cfs_period_us")
    limit = parse_cpu_max(f"{quota} {period}")  # -1: none
    return CpuLimit(limit, stat.get("nr_periods"), stat.get("nr_throttled"))


def _memory_v2(folder: Path) -> MemoryLimit:
    kills = named_numbers(read_text(folder / "memory.events")).get("oom_kill")
    limit = read_number(folder / "memory.max")
    return MemoryLimit(limit, read_number(folder / "memory.current"), kills)


def _memory_v1(folder: Path) -> MemoryLimit:
    limit = read_number(folder / "memory.limit_in_bytes")
    kills = named_numbers(read_text(folder / "memory.oom_control")).get("oom_kill")
    if limit is not None and limit >= _NONE_V1:
        limit = None
    return MemoryLimit(limit, read_number(folder / "memory.usage_in_bytes"), kills)

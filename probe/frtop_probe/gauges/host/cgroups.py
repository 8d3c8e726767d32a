"""Cgroups of ranks, such as containers and Slurm jobs: limits, throttling, kills, pressure.

A limit at any level above a process applies to it. So the subject shows the tightest limit of all
levels, with the use, throttling and kills at that level. Reads versions 1 and 2.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from frtop_probe.gauges.host.figures import read_pressure
from frtop_probe.gauges.host.mounts import Mount, parse_mounts
from frtop_probe.gauges.host.rates import Rates
from frtop_probe.gauges.readings import SubjectReading, known
from frtop_probe.proc.kernel_files import named_numbers, number, printable, read_number, read_text

MAX_CGROUPS: Final = 64
MAX_LEVELS: Final = 16
UNIFIED: Final = ""
"""Key of version 2's hierarchy; version 1's keys are the names of its controllers."""
_NAMED_BY: Final = ("memory", "cpu", UNIFIED)
NO_CGROUPS: Final = "the limits of ranks' cgroups cannot be read here"
_NONE_V1: Final = 1 << 62
"""Version 1 writes a number near 2**63 if there is no limit."""
_US: Final = 1000


@dataclass(frozen=True, slots=True)
class CgroupPlace:
    """A process's place in one hierarchy: its cgroup's folder, then those above it."""

    levels: tuple[Path, ...]
    version: int


def parse_memberships(text: str) -> dict[str, str]:
    """Parses /proc/PID/cgroup: the cgroup's path by controller, or `UNIFIED`."""
    found = {}
    for line in text.splitlines():
        number, _, rest = line.partition(":")
        controllers, colon, path = rest.partition(":")
        if not colon or not path.startswith("/"):
            continue
        if number == "0" and not controllers:
            found[UNIFIED] = path
        else:
            found.update(dict.fromkeys(controllers.split(","), path))
    return found


def hierarchies(mounts: Iterable[Mount]) -> dict[str, Mount]:
    """Returns the mount of each hierarchy, by controller or `UNIFIED`."""
    found: dict[str, Mount] = {}
    for mount in mounts:
        if mount.kind == "cgroup2":
            found.setdefault(UNIFIED, mount)
        elif mount.kind == "cgroup":
            for name in mount.options.split(","):
                found.setdefault(name, mount)
    return found


def place(path: str, mount: Mount, version: int) -> CgroupPlace | None:
    """Returns the folders of a cgroup; None if it is not below the mount."""
    root = mount.root.rstrip("/")
    if path != root and not path.startswith(root + "/"):
        return None
    parts = [part for part in path[len(root) :].split("/") if part]
    if ".." in parts:  # outside of our cgroup namespace
        return None
    top = Path(mount.folder)
    levels = [top.joinpath(*parts[:count]) for count in range(len(parts), -1, -1)]
    return CgroupPlace(tuple(levels[:MAX_LEVELS]), version)


def _name(paths: Mapping[str, str], shared: Mapping[str, int]) -> str:
    """Names a cgroup by a unique path if possible.

    In version 1 a memory cgroup may contain several CPU cgroups.
    """
    found = [path for name in _NAMED_BY if (path := paths.get(name, "/")) != "/"]
    return next((path for path in found if shared[path] == 1), next(iter(found), ""))


class CgroupSource:
    """A subject for each cgroup of ranks, except the root cgroup."""

    def __init__(self, proc: Path) -> None:
        self._proc = proc
        self._rates = Rates()

    def read(self, pids: Iterable[int], now_ns: int) -> Iterator[SubjectReading]:
        """The cgroups of these processes."""
        mounted = hierarchies(parse_mounts(read_text(self._proc / "self/mountinfo", 1 << 20)))
        users: dict[tuple[tuple[str, str], ...], list[int]] = {}
        for pid in pids:
            found = parse_memberships(read_text(self._proc / str(pid) / "cgroup"))
            relevant = tuple(
                (name, found[name])
                for name in ("cpu", "cpuacct", "memory", UNIFIED)
                if name in found
            )
            users.setdefault(relevant, []).append(pid)
        groups = [(dict(one), members) for one, members in list(users.items())[:MAX_CGROUPS]]
        shared = Counter(path for paths, _ in groups for path in set(paths.values()))
        for paths, members in groups:
            if any(path != "/" for path in paths.values()):
                name = _name(paths, shared)
                yield self._subject(name, paths, mounted, tuple(members), now_ns)

    def _subject(
        self,
        name: str,
        paths: dict[str, str],
        mounted: Mapping[str, Mount],
        pids: tuple[int, ...],
        now_ns: int,
    ) -> SubjectReading:
        def levels(controller: str) -> CgroupPlace | None:
            """Returns where a controller's files are: in its own hierarchy or in version 2's."""
            for key, version in ((controller, 1), (UNIFIED, 2)):
                if key in paths and key in mounted:
                    return place(paths[key], mounted[key], version)
            return None

        cpu, usage, memory = levels("cpu"), levels("cpuacct"), levels("memory")
        values: dict[str, int | None] = {}
        if cpu is not None:
            limit = cpu_limit(cpu.levels, version=cpu.version)
            periods = self._rates.rise((name, "periods"), limit.periods, now_ns)
            held = self._rates.rise((name, "throttled"), limit.throttled, now_ns)
            values["cpu_limit"] = limit.thousandths
            if periods is not None and held is not None:
                values["throttled"] = min(1000, 1000 * held[0] // periods[0]) if periods[0] else 0
        if usage is not None and len(usage.levels) > 1:
            used = used_ns(usage.levels[0], version=usage.version)
            rise = self._rates.rise((name, "used"), used, now_ns)
            values["cpu"] = None if rise is None else 1000 * rise[0] // rise[1]
        if memory is not None:
            found = memory_limit(memory.levels, version=memory.version)
            if len(memory.levels) > 1 or found.limit is not None:
                values |= {
                    "mem_limit": found.limit,
                    "mem_used": found.used,
                    "oom_kills": found.oom_kills,
                }
        unified = levels(UNIFIED) if UNIFIED in mounted else None
        if unified is not None and len(unified.levels) > 1:
            values |= read_pressure(unified.levels[0], ".pressure")
        problem = "" if values else NO_CGROUPS
        version = max((one.version for one in (cpu, memory) if one is not None), default=0)
        detail = f"cgroup v{version}" if version else ""
        return SubjectReading("cgroup", printable(name), known(**values), detail, problem, pids)


@dataclass(frozen=True, slots=True)
class CpuLimit:
    """The limit of one level in thousandths of a core, its periods and throttled periods."""

    thousandths: int | None
    periods: int | None
    throttled: int | None


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """Limit and use of one level in bytes, and its OOM kills."""

    limit: int | None
    used: int | None
    oom_kills: int | None


def parse_cpu_max(text: str) -> int | None:
    """Parses version 2's `cpu.max` (`100000 100000`, `max 100000`) to thousandths of a core."""
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
    """The tightest limit of these levels; without one, the use of the process's own cgroup."""
    found = [_memory_v2(one) if version == 2 else _memory_v1(one) for one in levels]
    set_ones = [one for one in found if one.limit is not None]
    tightest = min(set_ones, key=lambda one: one.limit or 0, default=None)
    return tightest or (found[0] if found else MemoryLimit(None, None, None))


def used_ns(folder: Path, *, version: int) -> int | None:
    """CPU time in ns of a cgroup and all cgroups below it."""
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

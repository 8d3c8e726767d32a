"""The cgroups of ranks, as of containers and Slurm: limits, throttling, kills, pressure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from frtop_probe.gauges.host import cgroup_files
from frtop_probe.gauges.host.mounts import Mount, parse_mounts
from frtop_probe.gauges.host.pressure import read_pressure
from frtop_probe.gauges.host.rates import Rates
from frtop_probe.gauges.host.subjects import SubjectReading, known, printable
from frtop_probe.proc.kernel_files import read_text

MAX_CGROUPS: Final = 64
MAX_LEVELS: Final = 16
UNIFIED: Final = ""
"""The key of version 2 beside the names of version 1's controllers."""
_NAMED_BY: Final = ("memory", "cpu", UNIFIED)
NO_CGROUPS: Final = "the limits of ranks' cgroups cannot be read here"


@dataclass(frozen=True, slots=True)
class CgroupPlace:
    """One process in one hierarchy: folders of its cgroup and of those above, the own first."""

    levels: tuple[Path, ...]
    version: int


def parse_memberships(text: str) -> dict[str, str]:
    """By controller, or `UNIFIED`, the cgroup's path, of /proc/PID/cgroup."""
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
    """By controller, or `UNIFIED`, where its hierarchy is mounted."""
    found: dict[str, Mount] = {}
    for mount in mounts:
        if mount.kind == "cgroup2":
            found.setdefault(UNIFIED, mount)
        elif mount.kind == "cgroup":
            for name in mount.options.split(","):
                found.setdefault(name, mount)
    return found


def place(path: str, mount: Mount, version: int) -> CgroupPlace | None:
    """The folders of a cgroup; None where it is not below what is mounted here."""
    root = mount.root.rstrip("/")
    if path != root and not path.startswith(root + "/"):
        return None
    parts = [part for part in path[len(root) :].split("/") if part]
    if ".." in parts:  # outside of our own namespace of cgroups
        return None
    top = Path(mount.folder)
    levels = [top.joinpath(*parts[:count]) for count in range(len(parts), -1, -1)]
    return CgroupPlace(tuple(levels[:MAX_LEVELS]), version)


def _name(paths: Mapping[str, str], shared: Mapping[str, int]) -> str:
    """What to call processes with these paths: by one that no others have, if there is one.

    In version 1 the same memory cgroup may be divided into several of CPU.
    """
    found = [path for name in _NAMED_BY if (path := paths.get(name, "/")) != "/"]
    return next((path for path in found if shared[path] == 1), next(iter(found), ""))


class CgroupSource:
    """A subject for each cgroup that ranks are in, but for that of all processes."""

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
            """Where a controller's files are: in its own hierarchy, or in version 2's."""
            for key, version in ((controller, 1), (UNIFIED, 2)):
                if key in paths and key in mounted:
                    return place(paths[key], mounted[key], version)
            return None

        cpu, usage, memory = levels("cpu"), levels("cpuacct"), levels("memory")
        values: dict[str, int | None] = {}
        if cpu is not None:
            limit = cgroup_files.cpu_limit(cpu.levels, version=cpu.version)
            periods = self._rates.rise((name, "periods"), limit.periods, now_ns)
            held = self._rates.rise((name, "throttled"), limit.throttled, now_ns)
            values["cpu_limit"] = limit.thousandths
            if periods is not None and held is not None:
                values["throttled"] = min(1000, 1000 * held[0] // periods[0]) if periods[0] else 0
        if usage is not None and len(usage.levels) > 1:
            used = cgroup_files.used_ns(usage.levels[0], version=usage.version)
            rise = self._rates.rise((name, "used"), used, now_ns)
            values["cpu"] = None if rise is None else 1000 * rise[0] // rise[1]
        if memory is not None:
            found = cgroup_files.memory_limit(memory.levels, version=memory.version)
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

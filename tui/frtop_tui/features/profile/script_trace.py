"""Reads what a script's own torch.profiler wrote: which rank it is, its clock, its collectives.

A collective is known by its group and sequence number where torch recorded them (NCCL). Older
versions record no number: then its place among the group's collectives in a `ProfilerStep#N`
counts. gloo records no group either: then its place among all counts, for ranks that are in the
same groups.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import msgspec

from frtop_probe.ring.rank_ranges import MAX_RANKS
from frtop_probe.wire.values import LARGEST
from frtop_tui.errors import Unreadable
from frtop_tui.features.profile.alignment import Key, Span
from frtop_tui.features.profile.content import file_content
from frtop_tui.features.profile.torch_lanes import UNREADABLE, TorchFile, torch_file
from frtop_tui.job.naming import printable

MOST_COLLECTIVES: Final = 20_000
"""Most collectives of a rank that are compared."""
_TOGETHER: Final = re.compile(r"all_?reduce|all_?gather|reduce_scatter|barrier")
"""Collectives that no member can end before all have begun. In others (a broadcast, an all-to-all
with empty parts), some need not wait for all."""
_MESSAGE: Final = re.compile(r"send|recv")
_STEP: Final = "ProfilerStep#"
_GLOO: Final = "gloo:"
_COMMS: Final = "record_param_comms"
_KERNEL: Final = "kernel"
_WINDOW_END: Final = "Record Window End"
_NO_STEP: Final = -1


class _Group(msgspec.Struct):
    name: str = msgspec.field(name="pg_name", default="")
    size: int = msgspec.field(name="pg_size", default=0)


class _Job(msgspec.Struct):
    """`distributedInfo`."""

    rank: int | None = None
    groups: list[_Group] | None = msgspec.field(name="pg_config", default=None)
    group_count: int | None = msgspec.field(name="pg_count", default=None)

    @property
    def all_groups(self) -> str | None:
        """The names of all groups that the rank is in; None if they are unknown."""
        if self.groups is None:
            return "" if self.group_count == 1 else None
        return " ".join(sorted(group.name for group in self.groups if group.size != 1))


_Micros = Annotated[float, msgspec.Meta(ge=-LARGEST / 1000, le=LARGEST / 1000)]


class _Event(msgspec.Struct):
    name: str = ""
    ph: str = ""
    cat: str = ""
    pid: Any = None
    ts: _Micros = 0.0
    dur: _Micros = 0.0
    args: msgspec.Raw = msgspec.Raw(b"{}")


class _Args(msgspec.Struct):
    external: int = msgspec.field(name="External id", default=0)
    kind: str = msgspec.field(name="Collective name", default="")
    group: str | None = msgspec.field(name="Process Group Name", default=None)
    ranks: str = msgspec.field(name="Process Group Ranks", default="")
    number: int = msgspec.field(name="Seq", default=-1)
    finished: bool = True


class _Issued(NamedTuple):
    """A collective of this rank; times are in µs, as in the file."""

    group: str
    number: int
    kind: str
    at: float
    begin: float
    end: float


@dataclass(slots=True)
class ScriptTrace:
    """What one file says of its rank, None if it is silent; times are Unix times in ns."""

    path: Path
    rank: int | None
    host: str
    begin: int
    end: int
    processes: frozenset[str]
    collectives: dict[Key, Span] = field(default_factory=dict)


_events: Final = msgspec.json.Decoder(_Event)
_args: Final = msgspec.json.Decoder(_Args)
_jobs: Final = msgspec.json.Decoder(_Job)


def read_script_trace(path: Path) -> ScriptTrace:
    """Reads one file.

    Raises:
        Unreadable: it is no trace of torch's profiler, or too large.
    """
    found = read_torch_file(path)
    try:
        return _trace(path, found)
    except UNREADABLE as error:
        raise foreign(path, error) from error


def read_torch_file(path: Path) -> TorchFile:
    """The file as torch wrote it, with its events undecoded.

    Raises:
        Unreadable: it is none, or too large.
    """
    try:
        found = torch_file(file_content(path))
    except EOFError as error:
        raise Unreadable(f"{path} is cut: its end is missing", _NEXT) from error
    except UNREADABLE as error:
        raise foreign(path, error) from error
    if found.is_merged:
        raise Unreadable(f"{path} is merged already", "name the files that torch wrote")
    return found


_NEXT: Final = "name files that torch.profiler wrote: *.pt.trace.json, or of export_chrome_trace"


def foreign(path: Path, error: Exception) -> Unreadable:
    """Why a file cannot be read as a trace."""
    if isinstance(error, OSError) and error.strerror:
        return Unreadable(f"{path} cannot be read: {error.strerror}", _NEXT)
    if "truncated" in str(error):
        return Unreadable(f"{path} is cut: its end is missing", _NEXT)
    why = printable(str(error))
    return Unreadable(f"{path} is no trace of torch's profiler: {why}", _NEXT)


def _trace(path: Path, found: TorchFile) -> ScriptTrace:
    job = _jobs.decode(found.job)
    scan = _Scan()
    for raw in found.events:
        scan.add(_events.decode(raw), raw)
    if scan.begin > scan.end:
        raise ValueError("it has no events")
    if job.rank is not None and not 0 <= job.rank < MAX_RANKS:
        raise ValueError(f"{job.rank} is no rank")
    begin, end = (found.base + round(1000 * at) for at in (scan.begin, scan.end))
    spans = _spans(scan.collectives(job.all_groups), scan.steps, found.base)
    processes = frozenset(scan.processes)
    return ScriptTrace(path, job.rank, printable(found.host), begin, end, processes, spans)


class _Scan:
    """What matters of all events of one file."""

    def __init__(self) -> None:
        self.begin, self.end = float("inf"), float("-inf")
        self.steps: list[tuple[float, int]] = []
        self.processes: set[str] = set()
        """Processes that ran torch's ops on the host."""
        self._gloo: list[tuple[str, float, float]] = []
        self._comms: dict[int, tuple[_Args, float]] = {}
        self._kernels: defaultdict[int, list[tuple[float, float]]] = defaultdict(list)
        self._window_end = float("inf")

    def add(self, event: _Event, raw: msgspec.Raw) -> None:
        if event.ph == "M":
            return
        end = event.ts + event.dur
        self.begin, self.end = min(self.begin, event.ts), max(self.end, end)
        if event.name == _WINDOW_END:
            self._window_end = event.ts
        elif event.ph == "X" and event.cat == _KERNEL:
            if b"nccl" in bytes(raw):
                self._kernels[_args.decode(event.args).external].append((event.ts, end))
        elif event.ph == "X":
            self._add_of_host(event, end)

    def _add_of_host(self, event: _Event, end: float) -> None:
        if event.cat == "cpu_op":
            self.processes.add(str(event.pid))
        if event.name == _COMMS:
            args = _args.decode(event.args)
            self._comms[args.external] = args, event.ts
        elif event.name.startswith(_GLOO):
            if _args.decode(event.args).finished:
                self._gloo.append((event.name, event.ts, end))
        elif event.name.startswith(_STEP):
            number = event.name.removeprefix(_STEP)
            if number.isdecimal():
                self.steps.append((event.ts, int(number)))

    def collectives(self, all_groups: str | None) -> Iterator[_Issued]:
        """All collectives that ended. Those that name no group are in one of `all_groups`."""
        for external, (args, at) in self._comms.items():
            group = args.group if args.group is not None else all_groups
            if group is not None and (kernels := self._kernels.get(external)):
                begin, end = min(one for one, _ in kernels), max(one for _, one in kernels)
                name = f"{group} {args.ranks}"
                yield _Issued(name, args.number, args.kind, at, begin, end)
        if all_groups is not None:
            for name, begin, end in self._gloo:
                # Older versions draw an op that has not ended up to the end of the recording.
                if end < self._window_end - 1:
                    yield _Issued(f"{_GLOO}{all_groups}", -1, name, begin, begin, end)


def _spans(
    issued: Iterable[_Issued], steps: Sequence[tuple[float, int]], base: int
) -> dict[Key, Span]:
    """The collectives that all members end together, by what identifies them on all."""
    begins = sorted(steps)
    found: dict[Key, Span] = {}
    doubled: set[Key] = set()
    by_step: defaultdict[tuple[str, int], list[_Issued]] = defaultdict(list)
    for one in sorted(issued, key=lambda one: one.at):
        if _MESSAGE.search(one.kind):  # members of a group send different numbers of messages
            continue
        place = bisect_right(begins, (one.at, 1 << 62))
        by_step[one.group, begins[place - 1][1] if place else _NO_STEP].append(one)
    for (group, step), ops in by_step.items():
        for nth, one in enumerate(ops):
            if not _TOGETHER.search(one.kind):
                continue
            key: Key = (group, one.number, one.kind)
            if one.number < 0:
                key = (group, step, nth, len(ops), one.kind)
            if key in found:
                doubled.add(key)
            elif len(found) < MOST_COLLECTIVES:
                span = (base + round(1000 * at) for at in (one.begin, one.end))
                found[key] = Span(*span)
    for key in doubled:
        del found[key]
    return found

"""Merges what a script's own torch.profiler wrote on several ranks into one trace.

One file at a time is in memory, and each is read twice: for its clock and collectives, then for
its events.
"""

from __future__ import annotations

import gzip
import os
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from itertools import islice
from pathlib import Path
from typing import Any, Final

import msgspec

from frtop_tui.errors import Unreadable
from frtop_tui.features.profile.alignment import ClockOffset, Key, Span, aligned
from frtop_tui.features.profile.model import MOST_RANKS
from frtop_tui.features.profile.script_trace import (
    ScriptTrace,
    foreign,
    read_script_trace,
    read_torch_file,
)
from frtop_tui.features.profile.torch_lanes import UNREADABLE, TorchLanes
from frtop_tui.features.profile.unnamed_file import UnnamedFile
from frtop_tui.files.bounded_read import Progress, announced, quietly
from frtop_tui.files.flightrecorder.file_names import RankPattern, rank_in_name
from frtop_tui.files.output_path import write_unused
from frtop_tui.files.paths import is_folder
from frtop_tui.job.naming import printable

_LEVEL: Final = 4
_SUFFIXES: Final = (".json", ".json.gz")
_encode: Final = msgspec.json.Encoder().encode


@dataclass(slots=True)
class ScriptMerge:
    """Traces by rank, how their clocks are aligned, and what could not be read."""

    traces: Mapping[int, Sequence[ScriptTrace]]
    clocks: Mapping[int, ClockOffset]
    """Of the ranks that could be aligned."""
    missing: list[str]

    @property
    def not_aligned(self) -> list[int]:
        return sorted(self.traces.keys() - self.clocks.keys())


def find_traces(paths: Sequence[Path]) -> list[Path]:
    """The named files; in folders, those with a usual name, one subfolder deep.

    Raises:
        Unreadable: a folder has none.
    """
    found: dict[str, Path] = {}
    for path in paths:
        candidates = [path]
        if is_folder(path):
            inside = (one for wild in ("*", "*/*") for one in path.glob(wild))
            candidates = sorted(one for one in inside if _has_usual_name(one))
            if not candidates:
                raise Unreadable(f"{path} has no {' or '.join(_SUFFIXES)}", "name another folder")
        for one in candidates:
            found.setdefault(os.path.realpath(one), one)
    return list(found.values())


def _has_usual_name(path: Path) -> bool:
    # An execution trace may lie beside the trace.
    return path.name.endswith(_SUFFIXES) and not path.name.endswith(".execution.json")


def read_script_traces(
    paths: Sequence[Path],
    pattern: RankPattern | None = None,
    ranks: Collection[int] = (),
    progress: Progress = quietly,
) -> ScriptMerge:
    """Reads all files once, and aligns their clocks; keeps these ranks, or all.

    Raises:
        Unreadable: no file can be read, the rank of one is unknown, or one rank has traces of
            several processes.
    """
    traces: defaultdict[int, list[ScriptTrace]] = defaultdict(list)
    missing: list[str] = []
    problem = Unreadable("the files have none of these ranks", "leave out --rank")
    for path in announced(paths, "traces", progress):
        try:
            trace = read_script_trace(path)
        except Unreadable as error:
            problem = error if not missing else problem
            missing.append(error.text)
            continue
        rank = _rank_of(trace, pattern)
        if not ranks or rank in ranks:
            traces[rank].append(trace)
    if not traces:
        raise problem
    if len(traces) > MOST_RANKS:
        text = f"{len(traces)} ranks are too many for one trace"
        raise Unreadable(text, f"name at most {MOST_RANKS}: --rank 0-7")
    for rank, found in traces.items():
        _require_one_process(rank, found)
        found.sort(key=lambda one: one.begin)
    collectives = {rank: _collectives(found) for rank, found in traces.items()}
    return ScriptMerge(dict(sorted(traces.items())), aligned(collectives), missing)


def _rank_of(trace: ScriptTrace, pattern: RankPattern | None) -> int:
    rank = trace.rank if pattern is None else pattern.number(trace.path)
    if rank is None and pattern is None:
        rank = rank_in_name(trace.path)
    if rank is None:
        raise Unreadable(
            f"the rank of {trace.path} is unknown: neither its content nor its name says it",
            "say where the rank is in the names: --ranks-from 'host*_gpu{rank}.json'",
        )
    return rank


def _require_one_process(rank: int, traces: Sequence[ScriptTrace]) -> None:
    """A script may write several traces, one per cycle of its schedule; another run may, too."""
    first, *more = traces
    for other in more:
        if other.processes != first.processes or other.host != first.host:
            raise Unreadable(
                f"rank {rank} has traces of two processes: {first.path} and {other.path}",
                "name the files of one run",
            )


def _collectives(traces: Sequence[ScriptTrace]) -> dict[Key, Span]:
    """Those of all traces of one rank, without those that are in two."""
    found: dict[Key, Span] = {}
    doubled: set[Key] = set()
    for trace in traces:
        doubled |= found.keys() & trace.collectives.keys()
        found.update(trace.collectives)
    return {key: span for key, span in found.items() if key not in doubled}


def write_script_merge(path: Path, merge: ScriptMerge, progress: Progress) -> tuple[Path, int]:
    """Writes one trace; never overwrites anything.

    Returns:
        The path that was written, and its size in bytes.

    Raises:
        OSError: it cannot be written.
    """
    return write_unused(path, lambda place: _write(place, merge, progress))


def _write(path: Path, merge: ScriptMerge, progress: Progress) -> int:
    if os.path.lexists(path):
        raise FileExistsError(17, "it exists", str(path))
    file = UnnamedFile(path.parent)
    try:
        with gzip.GzipFile(fileobj=file, mode="wb", compresslevel=_LEVEL) as packed:
            _write_document(packed, merge, progress)
        file.publish(path)
        return file.size
    finally:
        file.close()


def _write_document(file: gzip.GzipFile, merge: ScriptMerge, progress: Progress) -> None:
    shifts = {rank: _shift(merge, rank) for rank in merge.traces}
    all_traces = [(rank, one) for rank, found in merge.traces.items() for one in found]
    begin = min(one.begin + shifts[rank] for rank, one in all_traces)
    end = max(one.end + shifts[rank] for rank, one in all_traces)
    reading = announced([one.path for _, one in all_traces], "traces again, to merge", progress)
    file.write(b'{"displayTimeUnit":"ms","traceEvents":[')
    events = _EventList(file)
    about: dict[str, Any] = {}
    for rank, found in merge.traces.items():
        lanes = TorchLanes(rank)
        devices: Any = []
        for path in islice(reading, len(found)):
            try:
                devices = _write_events(events, lanes, path, shifts[rank] - begin)
            except Unreadable as error:
                merge.missing.append(error.text)
        host = found[0].host or "unknown host"
        for line in lanes.closing(host if rank in merge.clocks else f"{host}, not aligned"):
            events.add(line)
        about[str(rank)] = {
            **_about(found, merge.clocks.get(rank)),
            "device_properties": devices,
            "modules": None,
            "allocations": lanes.allocations.figures(),
        }
    document = {
        "written_by": f"frtop {metadata.version('frtop')}",
        "begin_unix_ns": str(begin),
        "end_unix_ns": str(end),
        "clock": _clock_text(merge),
        "clock_error_at_most_ns": _largest_error(merge),
        "not_aligned": merge.not_aligned,
        "ranks": about,
        "missing": [*map(printable, merge.missing)],
    }
    file.write(b'],"otherData":' + _encode(document) + b"}")


class _EventList:
    """The list of events in the document."""

    def __init__(self, file: gzip.GzipFile) -> None:
        self._file = file
        self._between = b""

    def add(self, event: bytes) -> None:
        self._file.write(self._between + event)
        self._between = b",\n"


def _write_events(events: _EventList, lanes: TorchLanes, path: Path, shift_ns: int) -> Any:
    """Writes the events of one file; returns the properties of its devices.

    Raises:
        Unreadable: it has changed since it was read first.
    """
    torch = read_torch_file(path)
    try:
        for line in lanes.moved(torch, (torch.base + shift_ns) / 1000):
            events.add(line)
        return msgspec.json.decode(torch.devices)
    except UNREADABLE as error:
        raise foreign(path, error) from error


def _shift(merge: ScriptMerge, rank: int) -> int:
    clock = merge.clocks.get(rank)
    return 0 if clock is None else clock.shift


def _clock_text(merge: ScriptMerge) -> str:
    reference = min(merge.clocks)
    text = f"the wall clock of rank {reference}'s host; other clocks are aligned by collectives"
    if merge.not_aligned:
        text += "; ranks that are not aligned have their own host's wall clock"
    return text


def _largest_error(merge: ScriptMerge) -> int | None:
    errors = [clock.error_at_most for clock in merge.clocks.values()]
    return None if merge.not_aligned or None in errors else max(filter(None, errors), default=0)


def _about(traces: Sequence[ScriptTrace], clock: ClockOffset | None) -> dict[str, Any]:
    return {
        "host": traces[0].host,
        "files": [printable(one.path.name) for one in traces],
        "aligned": clock is not None,
        "clock_shifted_by_ns": 0 if clock is None else clock.shift,
        "clock_error_estimated_ns": None if clock is None else clock.error_estimated,
        "clock_error_at_most_ns": None if clock is None else clock.error_at_most,
        "aligned_with": None if clock is None else clock.neighbour,
        "shared_collectives": 0 if clock is None else clock.shared,
    }

"""Merges torch's profiles of several ranks and frtop's own lanes into one file for Perfetto.

The file is compressed JSON (Trace Event Format). Each rank and each of its devices is a process;
times are on the operator's clock.
"""

from __future__ import annotations

import gzip
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from frtop_probe import wire
from frtop_tui.diagnosis.model import Frame
from frtop_tui.errors import NotWritten
from frtop_tui.features.profile.model import RankAllocations
from frtop_tui.features.profile.torch_lanes import PER_RANK, UNREADABLE, RankTrace, rank_events
from frtop_tui.features.profile.unnamed_file import UnnamedFile
from frtop_tui.files import capture
from frtop_tui.files.formats.chrome_trace import chrome_trace
from frtop_tui.files.formats.rank_ops import unix_offset_ns
from frtop_tui.files.output_path import write_unused
from frtop_tui.job.naming import printable

BEGAN_BEFORE: Final = "began before, by ms"
"""An argument of events that are drawn from the first moment of the file on."""
_LEVEL: Final = 4


class _Document(msgspec.Struct):
    events: list[dict[str, Any]] = msgspec.field(name="traceEvents")
    about: dict[str, Any] = msgspec.field(name="otherData")


_documents: Final = msgspec.json.Decoder(_Document)
_encode: Final = msgspec.json.Encoder().encode


@dataclass(slots=True)
class Contents:
    """About a merged file: what is missing or wrong, allocations, whether it has modules."""

    troubles: list[str] = field(default_factory=list)
    allocations: list[RankAllocations] = field(default_factory=list)
    has_modules: bool = False


def write_profiles(
    path: Path,
    traces: Sequence[RankTrace],
    frame: Frame,
    histories: Mapping[int, wire.HistoryResponse],
    missing: Sequence[str],
    *,
    separate: bool,
) -> tuple[Path, int, Contents]:
    """Writes one file, or a folder with a file per rank; never overwrites anything.

    Returns:
        The path that was written, its size in bytes, and what is in it.

    Raises:
        NotWritten: no trace can be read.
        OSError: it cannot be written.
    """
    contents = Contents()
    write: Callable[[Path], int]
    if separate:
        write = lambda place: _write_separate(place, traces)  # noqa: E731
    else:
        known = {rank: one for rank, one in histories.items() if rank in frame.ranks}
        ranks = {one.rank: frame.ranks[one.rank] for one in traces}
        shown = capture.collected(msgspec.structs.replace(frame, ranks=ranks), known, ())
        write = lambda place: _write_merged(place, traces, shown, missing, contents)  # noqa: E731
    put, size = write_unused(path, write)
    return put, size, contents


def _write_separate(path: Path, traces: Sequence[RankTrace]) -> int:
    path.mkdir()
    try:
        for trace in traces:
            for name, file in trace.files.items():
                suffix = "" if name == "trace" else f".{name}"
                file.publish(path / f"rank{trace.rank}{suffix}.json")
    except BaseException:
        shutil.rmtree(path, ignore_errors=True)
        raise
    return sum(file.size for trace in traces for file in trace.files.values())


def _write_merged(
    path: Path,
    traces: Sequence[RankTrace],
    frame: Frame,
    missing: Sequence[str],
    contents: Contents,
) -> int:
    troubles = contents.troubles
    troubles.clear()
    contents.allocations.clear()
    contents.has_modules = False
    if os.path.lexists(path):
        raise FileExistsError(17, "it exists", str(path))
    merged = UnnamedFile(path.parent)
    try:
        with gzip.GzipFile(fileobj=merged, mode="wb", compresslevel=_LEVEL) as file:
            read = _write_events(file.write, traces, frame, [*missing], contents)
        if not read:
            raise NotWritten(f"no trace can be read: {troubles[0]}", "try again")
        merged.publish(path)
        for trace in traces:
            if (execution := trace.files.get("execution")) is not None:
                try:
                    write_unused(beside(path, trace.rank), execution.publish)
                except OSError as error:
                    why = error.strerror or error
                    troubles.append(f"the execution trace of rank {trace.rank}: {why}")
        return merged.size
    finally:
        merged.close()


def beside(path: Path, rank: int) -> Path:
    """The path of a rank's execution trace, beside the profile."""
    stem = path.name.removesuffix(".gz").removesuffix(".json")
    return path.with_name(f"{stem}.rank{rank}.execution.json")


def _write_events(
    write: Callable[[bytes], object],
    traces: Sequence[RankTrace],
    frame: Frame,
    missing: list[str],
    contents: Contents,
) -> int:
    """Writes the whole document; returns how many traces are in it."""
    begin, end = _window(traces, frame)
    own = _documents.decode(chrome_trace(frame))
    own_base = int(own.about["begin_unix_ns"])
    write(b'{"displayTimeUnit":"ms","traceEvents":[')
    first = True
    for event in _own_events(own.events, own_base, begin, end, {one.rank for one in traces}):
        write((b"" if first else b",\n") + _encode(event))
        first = False
    read = 0
    about: dict[str, Any] = {}
    for trace in traces:
        lines = rank_events(trace, frame, begin, about)
        while True:
            try:
                line = next(lines, None)
            except UNREADABLE as error:
                contents.troubles.append(f"the trace of rank {trace.rank} cannot be read: {error}")
                break
            if line is None:
                read += 1
                contents.allocations += about[str(trace.rank)]["allocations"]
                contents.has_modules |= about[str(trace.rank)]["modules"] is not None
                break
            write((b"" if first else b",\n") + line)
            first = False
    document = {
        **own.about,
        "begin_unix_ns": str(begin),
        "end_unix_ns": str(end),
        "ranks": about,
        "missing": [*map(printable, (*missing, *contents.troubles))],
    }
    write(b'],"otherData":' + _encode(document) + b"}")
    return read


def _window(traces: Sequence[RankTrace], frame: Frame) -> tuple[int, int]:
    """When the first profile began and the last one ended: Unix times on the operator's clock."""
    begins, ends = [], []
    for trace in traces:
        shift = unix_offset_ns(frame, frame.ranks[trace.rank])
        begins.append(trace.clocks[0][0] + shift)
        ends.append(trace.clocks[-1][0] + shift)
    return min(begins), max(ends)


def _own_events(
    events: Iterable[dict[str, Any]], base: int, begin: int, end: int, ranks: set[int]
) -> Iterator[dict[str, Any]]:
    """The events of these ranks' own lanes that overlap the profiles."""
    shift = (base - begin) / 1000
    until = (end - begin) / 1000
    arrows: dict[Any, list[dict[str, Any]]] = {}
    for event in events:
        rank = event["pid"] - 10
        if rank not in ranks:
            continue
        if event["ph"] == "M":
            if event["name"] == "process_sort_index":
                event["args"] = {"sort_index": rank * PER_RANK}
            elif event["name"] == "process_name":
                event["args"] = {"name": f"{event['args']['name']}: frtop"}
            yield event
            continue
        if not _overlaps(event, shift, until):
            continue
        if event["ph"] in ("s", "t", "f"):
            arrows.setdefault(event["id"], []).append(event)
        else:
            yield event
    for arrow in arrows.values():
        if {"s", "f"} <= {event["ph"] for event in arrow}:
            yield from arrow


def _overlaps(event: dict[str, Any], shift: float, until: float) -> bool:
    """Shifts an event's time; returns whether it overlaps the time from 0 to `until`."""
    at, lasts = event["ts"] + shift, event.get("dur", 0.0)
    if at > until or at + lasts < 0:
        return False
    if at < 0:  # Perfetto drops what begins before the first moment
        event["args"] = {**event.get("args", {}), BEGAN_BEFORE: round(-at / 1000, 3)}
        event["dur"], at = round(lasts + at, 3), 0.0
    event["ts"] = round(at, 3)
    return True

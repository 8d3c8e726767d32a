"""Profiles that torch wrote in several ranks as one file for Perfetto, beside frtop's own lanes.

In the Trace Event Format (JSON), compressed. A process per rank, and one for each of its devices;
times are on the operator's clock. A trace may have a million events: it is read from a mapped
file, and its events are changed and written one by one, not as Python's objects.
"""

from __future__ import annotations

import gzip
import mmap
import os
import shutil
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from frtop_probe import wire
from frtop_tui.diagnosis.model import Frame
from frtop_tui.errors import NotWritten
from frtop_tui.export import capture
from frtop_tui.export.formats.chrome_trace import chrome_trace
from frtop_tui.export.formats.rank_ops import RankOp, rank_ops, unix_offset_ns
from frtop_tui.export.output_path import write_unused
from frtop_tui.export.unnamed_file import UnnamedFile
from frtop_tui.job.naming import group_label, printable

FIRST_PROCESS: Final = 100_000
"""Process ids of torch's lanes begin here; those of frtop's own are far below."""
PER_RANK: Final = 100
"""A rank's processes: itself, its devices, and what Kineto shows like processes."""
SLACK_NS: Final = 50_000
"""By which the issue of an op may seem to lie outside of torch's event for it."""
JUMP_NS: Final = 1_000_000
_LEVEL: Final = 4
_COLLECTIVE: Final = b'"c10d::'
_NAMED: Final = (b'"c10d::', b'"record_param_comms', b'"gloo:', b'"nccl:')
"""Beginnings of the names of events that stand for a collective."""
_DROPPED: Final = frozenset((b'"process_name"', b'"process_sort_index"'))
_FLOWS: Final = frozenset((b'"s"', b'"t"', b'"f"'))
_UNREADABLE: Final = (OSError, ValueError, TypeError, KeyError, ArithmeticError, RecursionError)
"""What reading a file can raise that is not as torch writes it; msgspec's are among them."""
Event = dict[str, msgspec.Raw]


@dataclass(frozen=True, slots=True)
class RankTrace:
    """The files of one rank by name, and its monotonic and wall clock at both ends, in ns."""

    rank: int
    host: str
    files: Mapping[str, UnnamedFile]
    clocks: tuple[tuple[int, int], ...]


class _Trace(msgspec.Struct):
    """A file as torch writes it; times are in µs since `base`."""

    events: list[msgspec.Raw] = msgspec.field(name="traceEvents")
    base: int = msgspec.field(name="baseTimeNanoseconds", default=0)
    devices: msgspec.Raw = msgspec.field(
        name="deviceProperties", default_factory=lambda: msgspec.Raw(b"[]")
    )


class _Document(msgspec.Struct):
    events: list[dict[str, Any]] = msgspec.field(name="traceEvents")
    about: dict[str, Any] = msgspec.field(name="otherData")


_traces: Final = msgspec.json.Decoder(_Trace)
_events: Final = msgspec.json.Decoder(Event)
_documents: Final = msgspec.json.Decoder(_Document)
_encode: Final = msgspec.json.Encoder().encode


def write_profiles(
    path: Path,
    traces: Sequence[RankTrace],
    frame: Frame,
    histories: Mapping[int, wire.HistoryResponse],
    missing: Sequence[str],
    *,
    separate: bool,
) -> tuple[Path, int, list[str]]:
    """Writes one file, or a folder with a file for each rank; never over what is there.

    Returns:
        The path that was written, its size in bytes, and what is missing or wrong in it.

    Raises:
        NotWritten: no trace can be read.
        OSError: it cannot be written.
    """
    troubles: list[str] = []
    write: Callable[[Path], int]
    if separate:
        write = lambda place: _write_separate(place, traces)  # noqa: E731
    else:
        known = {rank: one for rank, one in histories.items() if rank in frame.ranks}
        ranks = {one.rank: frame.ranks[one.rank] for one in traces}
        shown = capture.collected(msgspec.structs.replace(frame, ranks=ranks), known, ())
        write = lambda place: _write_merged(place, traces, shown, missing, troubles)  # noqa: E731
    put, size = write_unused(path, write)
    return put, size, troubles


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
    troubles: list[str],
) -> int:
    troubles.clear()
    if os.path.lexists(path):
        raise FileExistsError(17, "it exists", str(path))
    merged = UnnamedFile(path.parent)
    try:
        with gzip.GzipFile(fileobj=merged, mode="wb", compresslevel=_LEVEL) as file:
            read = _write_events(file.write, traces, frame, [*missing], troubles)
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
    """Where a rank's execution trace is put: beside the profile."""
    stem = path.name.removesuffix(".gz").removesuffix(".json")
    return path.with_name(f"{stem}.rank{rank}.execution.json")


def _write_events(
    write: Callable[[bytes], object],
    traces: Sequence[RankTrace],
    frame: Frame,
    missing: list[str],
    troubles: list[str],
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
        lines = _rank_events(trace, frame, begin, about)
        while True:
            try:
                line = next(lines, None)
            except _UNREADABLE as error:
                troubles.append(f"the trace of rank {trace.rank} cannot be read: {error}")
                break
            if line is None:
                read += 1
                break
            write((b"" if first else b",\n") + line)
            first = False
    document = {
        **own.about,
        "begin_unix_ns": str(begin),
        "end_unix_ns": str(end),
        "ranks": about,
        "missing": [*map(printable, (*missing, *troubles))],
    }
    write(b'],"otherData":' + _encode(document) + b"}")
    return read


def _window(traces: Sequence[RankTrace], frame: Frame) -> tuple[int, int]:
    """When the first profile began and the last one ended, as Unix times on our clock."""
    begins, ends = [], []
    for trace in traces:
        shift = unix_offset_ns(frame, frame.ranks[trace.rank])
        begins.append(trace.clocks[0][0] + shift)
        ends.append(trace.clocks[-1][0] + shift)
    return min(begins), max(ends)


def _own_events(
    events: Iterable[dict[str, Any]], base: int, begin: int, end: int, ranks: set[int]
) -> Iterator[dict[str, Any]]:
    """The lanes of frtop itself, of these ranks, as far as they overlap the profiles."""
    shift = (base - begin) / 1000
    until = (end - begin) / 1000
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
        event["ts"] += shift
        if event["ts"] <= until and event["ts"] + event.get("dur", 0.0) >= 0:
            yield event


def _rank_events(
    trace: RankTrace, frame: Frame, begin: int, about: dict[str, Any]
) -> Iterator[bytes]:
    """The events of one rank on our clock, with processes of their own."""
    view = frame.ranks[trace.rank]
    (at, wall), (at_end, wall_end) = trace.clocks[0], trace.clocks[-1]
    jump = (wall_end - wall) - (at_end - at)
    shift = at - wall + unix_offset_ns(frame, view)
    host = next((one for one in frame.hosts if one.name == view.host), None)
    error = host.clock_error_ns if host is not None else None
    data = mmap.mmap(trace.files["trace"].fileno(), 0, access=mmap.ACCESS_READ)
    found = _traces.decode(data)
    offset = (found.base + shift - begin) / 1000
    ops = _Numbers(frame, trace.rank, found.events, found.base + shift)
    processes: dict[bytes, int] = {}
    numbered = 0
    for raw in found.events:
        event = _events.decode(raw)
        name = bytes(event.get("name", b""))
        if name in _DROPPED:
            continue
        if (pid := event.get("pid")) is not None:
            known = processes.setdefault(bytes(pid), len(processes))
            event["pid"] = _raw(FIRST_PROCESS + trace.rank * PER_RANK + min(known, PER_RANK - 1))
        if (at_us := event.get("ts")) is not None:
            time_us = float(msgspec.json.decode(at_us)) + offset
            event["ts"] = msgspec.Raw(b"%.3f" % time_us)
            if name.startswith(_NAMED) and (number := ops.of(time_us, offset)) is not None:
                event["args"] = _with(event.get("args"), number)
                numbered += 1
        if bytes(event.get("ph", b"")) in _FLOWS and (flow := event.get("id")) is not None:
            event["id"] = _raw(f"{trace.rank}.{bytes(flow).decode()}")
        yield _encode(event)
    for written, place in processes.items():
        yield from _process_names(trace, written.decode("utf-8", "replace").strip('"'), place)
    about[str(trace.rank)] = {
        "host": printable(trace.host),
        "events": len(found.events),
        "clock_error_at_most_ns": None if error is None else error + abs(jump),
        "wall_clock_jumped_ns": jump if abs(jump) > JUMP_NS else 0,
        "events_with_frtop_number": numbered,
        "device_properties": msgspec.json.decode(found.devices),
    }


def _process_names(trace: RankTrace, pid: str, place: int) -> Iterator[bytes]:
    process = FIRST_PROCESS + trace.rank * PER_RANK + min(place, PER_RANK - 1)
    what = f"GPU {pid}" if pid.isdecimal() and int(pid) < 64 else "torch"
    if not pid.isdecimal():
        what = f"torch, {pid or 'marks'}"
    name = printable(f"rank {trace.rank} ({trace.host}): {what}")
    for kind, args in (
        ("process_name", {"name": name}),
        ("process_sort_index", {"sort_index": trace.rank * PER_RANK + 1 + place}),
    ):
        yield _encode({"ph": "M", "name": kind, "pid": process, "tid": 0, "ts": 0, "args": args})


class _Numbers:
    """frtop's numbers of ops, to be found by the time of torch's events for them.

    An op is issued inside of torch's event `c10d::...` for it: frtop's hook is below it.
    """

    def __init__(
        self, frame: Frame, rank: int, events: Iterable[msgspec.Raw], shift_ns: int
    ) -> None:
        ops = [one for one in rank_ops(frame, frame.ranks[rank]) if not one.op.pseudo]
        ops.sort(key=lambda one: one.begin_ns)
        issued = [one.begin_ns for one in ops]
        spans = sorted(_spans(events, shift_ns))
        self._begins: list[float] = []
        self._ends: list[float] = []
        self._ops: list[RankOp] = []
        self._shift = shift_ns
        for begin, end in spans:
            place = bisect_left(issued, begin - SLACK_NS)
            if place < len(ops) and issued[place] <= end + SLACK_NS:
                self._begins.append(begin)
                self._ends.append(end)
                self._ops.append(ops[place])

    def of(self, at_us: float, offset_us: float) -> RankOp | None:
        """The op in whose event a time lies."""
        at = (at_us - offset_us) * 1000 + self._shift
        place = bisect_right(self._begins, at + 1) - 1
        return self._ops[place] if place >= 0 and at <= self._ends[place] else None


def _spans(events: Iterable[msgspec.Raw], shift_ns: int) -> Iterator[tuple[float, float]]:
    for raw in events:
        if _COLLECTIVE not in bytes(raw):
            continue
        event = _events.decode(raw)
        if bytes(event.get("name", b"")).startswith(_COLLECTIVE) and "dur" in event:
            begin = float(msgspec.json.decode(event["ts"])) * 1000 + shift_ns
            yield begin, begin + float(msgspec.json.decode(event["dur"])) * 1000


def _with(args: msgspec.Raw | None, one: RankOp) -> msgspec.Raw:
    known = _events.decode(args) if args is not None else {}
    group = one.group
    known["frtop number"] = _raw(one.op.number)
    if group is not None:
        known["frtop group"] = _raw(group_label(group.name, group.description))
    return msgspec.Raw(_encode(known))


def _raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(_encode(value))

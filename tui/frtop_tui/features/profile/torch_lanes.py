"""Torch's events of one rank as lanes of a merged profile, on its clock, with own names.

Perfetto drops events that do not nest within a thread or begin before its first moment, and arrows
whose ids are no numbers: none of it is written so. A trace may have a million events: it is read
from a mapped file, and its events are changed one by one, not as Python's objects.
"""

from __future__ import annotations

import mmap
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import msgspec

from frtop_probe.wire.values import Int
from frtop_tui.diagnosis.model import Frame
from frtop_tui.features.profile.allocations import ALLOCATIONS, Allocations
from frtop_tui.features.profile.model import ModelDescription
from frtop_tui.features.profile.unnamed_file import UnnamedFile
from frtop_tui.files.formats.rank_ops import RankOp, rank_ops, unix_offset_ns
from frtop_tui.job.naming import group_label, printable

FIRST_PROCESS: Final = 100_000
"""Process ids of torch's lanes begin here; those of frtop's lanes are far below."""
PER_RANK: Final = 100
"""A rank's processes: itself, its devices, and what Kineto shows as processes."""
STEPS_LANE: Final = (1 << 31) - 1
"""A lane for steps: they belong to no thread, since a step ends within `Optimizer.step`."""
GLOO_LANE: Final = STEPS_LANE - 1
"""The first of the lanes for gloo's ops, which end on other threads than they begin on; lanes for
those that overlap have the numbers below."""
SLACK_NS: Final = 50_000
"""How far an op's time of issue may seem to be outside of torch's event for it."""
JUMP_NS: Final = 1_000_000
MOST_MODEL: Final = 64 << 20
"""The most bytes of a model's description."""
UNREADABLE: Final = (OSError, ValueError, TypeError, KeyError, ArithmeticError, RecursionError)
"""Errors from reading a file that torch did not write; they include msgspec's."""
_STEP: Final = b'"ProfilerStep#'
_COLLECTIVE: Final = b'"c10d::'
_NAMED: Final = (b'"c10d::', b'"record_param_comms', b'"gloo:', b'"nccl:')
"""Prefixes of the names of events that stand for a collective."""
_GLOO: Final = b'"gloo:'
_DROPPED: Final = frozenset((b'"process_name"', b'"process_sort_index"'))
_LABELS: Final = b'"process_labels"'
_OF_DEVICES: Final = frozenset((b'"kernel"', b'"gpu_memcpy"', b'"gpu_memset"'))
"""Categories of events whose process is a device's number."""
_OF_HOST: Final = b'"cpu_op"'
_FLOWS: Final = frozenset((b'"s"', b'"t"', b'"f"'))
Event = dict[str, msgspec.Raw]


@dataclass(frozen=True, slots=True)
class RankTrace:
    """The files of one rank by name, and its monotonic and wall clock at start and end, in ns."""

    rank: int
    host: str
    files: Mapping[str, UnnamedFile]
    clocks: tuple[tuple[int, int], ...]


class TorchFile(msgspec.Struct):
    """A file as torch writes it; times are in µs since `base`."""

    events: list[msgspec.Raw] = msgspec.field(name="traceEvents")
    base: Int = msgspec.field(name="baseTimeNanoseconds", default=0)
    devices: msgspec.Raw = msgspec.field(name="deviceProperties", default=msgspec.Raw(b"[]"))
    job: msgspec.Raw = msgspec.field(name="distributedInfo", default=msgspec.Raw(b"{}"))
    host: str = msgspec.field(name="host_name", default="")
    about: msgspec.Raw = msgspec.field(name="otherData", default=msgspec.Raw(b"{}"))

    @property
    def is_merged(self) -> bool:
        """Whether frtop wrote it: torch writes no `otherData`."""
        return b'"begin_unix_ns"' in bytes(self.about)


_files: Final = msgspec.json.Decoder(TorchFile)
_events: Final = msgspec.json.Decoder(Event)
_models: Final = msgspec.json.Decoder(ModelDescription)
_encode: Final = msgspec.json.Encoder().encode


def rank_events(
    trace: RankTrace, frame: Frame, begin: int, about: dict[str, Any]
) -> Iterator[bytes]:
    """The events of one rank on the operator's clock, in processes of their own."""
    view = frame.ranks[trace.rank]
    (at, wall), (at_end, wall_end) = trace.clocks[0], trace.clocks[-1]
    jump = (wall_end - wall) - (at_end - at)
    shift = at - wall + unix_offset_ns(frame, view)
    host = next((one for one in frame.hosts if one.name == view.host), None)
    error = host.clock_error_ns if host is not None else None
    data = mmap.mmap(trace.files["trace"].fileno(), 0, access=mmap.ACCESS_READ)
    found = torch_file(data)
    ops = _Numbers(frame, trace.rank, found.events, found.base + shift)
    lanes = TorchLanes(trace.rank)
    yield from lanes.moved(found, (found.base + shift - begin) / 1000, ops)
    yield from lanes.closing(trace.host)
    about[str(trace.rank)] = {
        "host": printable(trace.host),
        "events": len(found.events),
        "clock_error_at_most_ns": None if error is None else error + abs(jump),
        "wall_clock_jumped_ns": jump if abs(jump) > JUMP_NS else 0,
        "events_with_frtop_number": lanes.numbered,
        "device_properties": msgspec.json.decode(found.devices),
        "modules": _model(trace.files.get("modules")),
        "allocations": lanes.allocations.figures(),
    }


def torch_file(data: bytes | mmap.mmap) -> TorchFile:
    """A file's content, with its events undecoded.

    Raises:
        msgspec.MsgspecError: torch did not write it.
    """
    return _files.decode(data)


def _model(file: UnnamedFile | None) -> ModelDescription | None:
    """The modules of a rank; None if they are not recorded or the file is damaged."""
    try:
        if file is None:
            return None
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return _models.decode(data) if len(data) <= MOST_MODEL else None
    except UNREADABLE:
        return None


class TorchLanes:
    """Where the events of one rank go, from one or more files."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._processes: dict[bytes, int] = {}
        self._devices: dict[bytes, bool] = {}
        """Process ids that are devices, and whether they have events."""
        self._hosts: set[bytes] = set()
        """Those that ran ops: in a container, a rank may have pid 7 too."""
        self._flows: dict[tuple[int, bytes], int] = {}
        self._files = 0
        self._steps: msgspec.Raw | None = None
        self._gloo: list[Event] = []
        """Ops of gloo in the present file."""
        self._gloo_lanes: list[tuple[msgspec.Raw, float]] = []
        """The process of each lane, and until when it is taken."""
        self.allocations = Allocations(rank)
        self.numbered = 0
        """How many events got frtop's number of their op."""

    def moved(
        self, found: TorchFile, offset_us: float, ops: _Numbers | None = None
    ) -> Iterator[bytes]:
        """The events of a file in their lanes and times."""
        self._files += 1
        for raw in found.events:
            event = self._moved(_events.decode(raw), offset_us, ops)
            if event is None:
                continue
            if bytes(event.get("name", b"")).startswith(_GLOO) and "dur" in event:
                self._gloo.append(event)
                continue
            yield _encode(event)
            if (name := bytes(event.get("name", b""))) in ALLOCATIONS:
                self.allocations.add(name, event)
        yield from map(_encode, self._gloo_ops())

    def _gloo_ops(self) -> Iterator[Event]:
        """The ops of gloo, each in a lane that is free at its time."""
        ops, self._gloo = self._gloo, []
        for event in sorted(ops, key=_begin_us):
            at, lasts = _begin_us(event), float(msgspec.json.decode(event["dur"]))
            places = enumerate(self._gloo_lanes)
            lane = next((n for n, (_, until) in places if until <= at), len(self._gloo_lanes))
            self._gloo_lanes[lane : lane + 1] = [(event["pid"], at + lasts)]
            event["tid"] = _raw(GLOO_LANE - lane)
            yield event

    def closing(self, host: str) -> Iterator[bytes]:
        """Events after those of all files: allocated bytes, and names of lanes."""
        yield from map(_encode, chain(self.allocations.counters(), self._names(host)))

    def _moved(self, event: Event, offset_us: float, ops: _Numbers | None) -> Event | None:
        """The event in its lane and time; None if it has no place."""
        name, phase = bytes(event.get("name", b"")), bytes(event.get("ph", b""))
        if name in _DROPPED:
            return None
        if (pid := event.get("pid")) is not None:
            self._note_kind(bytes(pid), event)
            event["pid"] = _raw(self._process(bytes(pid)))
        if phase == b'"M"':
            event.pop("ts", None)
        elif (at := event.get("ts")) is not None:
            at_us = float(msgspec.json.decode(at)) + offset_us
            if not _begins_at(event, at_us):
                return None
            if ops is not None and name.startswith(_NAMED):
                self._number(event, ops.of(at_us, offset_us))
        if phase in _FLOWS and (flow := event.get("id")) is not None:
            number = self._flows.setdefault((self._files, bytes(flow)), len(self._flows))
            event["id"] = _raw((self._rank << 32) + number)
        if name.startswith(_STEP):
            self._steps, event["tid"] = event.get("pid"), _raw(STEPS_LANE)
        return event

    def _note_kind(self, pid: bytes, event: Event) -> None:
        category = bytes(event.get("cat", b""))
        if category in _OF_DEVICES:
            self._devices[pid] = True
        elif category == _OF_HOST:
            self._hosts.add(pid)
        elif bytes(event.get("name", b"")) == _LABELS and b'"GPU' in bytes(event.get("args", b"")):
            self._devices.setdefault(pid, False)

    def _number(self, event: Event, op: RankOp | None) -> None:
        if op is not None:
            event["args"] = _with(event.get("args"), op)
            self.numbered += 1

    def _names(self, host: str) -> Iterator[dict[str, Any]]:
        """Events that name the processes, and the lane of steps."""
        for written, place in self._processes.items():
            pid = written.decode("utf-8", "replace").strip('"')
            what = f"GPU {pid}" if written in self._devices else "torch"
            if written in self._hosts:
                what = f"torch and {what}" if self._devices.get(written) else "torch"
            if not pid.isdecimal():
                what = f"torch, {pid or 'marks'}"
            name = printable(f"rank {self._rank} ({host}): {what}")
            process, order = self._process(written), self._rank * PER_RANK + 1 + place
            yield _metadata("process_name", process, 0, {"name": name})
            yield _metadata("process_sort_index", process, 0, {"sort_index": order})
        if self._steps is not None:
            yield _metadata("thread_name", self._steps, STEPS_LANE, {"name": "steps"})
            yield _metadata("thread_sort_index", self._steps, STEPS_LANE, {"sort_index": -1})
        for lane, (owner, _) in enumerate(self._gloo_lanes):
            yield _metadata("thread_name", owner, GLOO_LANE - lane, {"name": "gloo"})

    def _process(self, pid: bytes) -> int:
        place = self._processes.setdefault(pid, len(self._processes))
        return FIRST_PROCESS + self._rank * PER_RANK + min(place, PER_RANK - 1)


def _begin_us(event: Event) -> float:
    return float(msgspec.json.decode(event["ts"]))


def _metadata(name: str, pid: object, tid: int, args: Mapping[str, object]) -> dict[str, Any]:
    return {"ph": "M", "name": name, "pid": pid, "tid": tid, "args": args}


def _begins_at(event: Event, time_us: float) -> bool:
    """Sets an event's begin, at the first moment or later; false if it was over before."""
    if time_us < 0:
        lasts_us = float(msgspec.json.decode(event.get("dur", msgspec.Raw(b"0")))) + time_us
        if lasts_us <= 0:
            return False
        event["dur"], time_us = msgspec.Raw(b"%.3f" % lasts_us), 0.0
    event["ts"] = msgspec.Raw(b"%.3f" % time_us)
    return True


class _Numbers:
    """frtop's numbers of ops, looked up by the times of torch's events for them.

    An op is issued inside torch's event `c10d::...`, because frtop's hook is called below it.
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
        """The op whose event includes a time."""
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

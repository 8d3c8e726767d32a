"""A trace in the Trace Event Format (JSON object), for Perfetto and chrome://tracing.

A process per rank, a lane per group, arrows between the ranks of one collective. All times are on
the operator's clock; `otherData` gives their possible error.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import metadata
from itertools import chain
from typing import Any, Final

import msgspec

from frtop_probe import wire
from frtop_probe.statistics.op_bytes import op_bytes
from frtop_tui.diagnosis.model import Frame, JudgedRank
from frtop_tui.files.formats.op_table import tensors_text
from frtop_tui.files.formats.rank_ops import RankOp, rank_ops, unix_offset_ns
from frtop_tui.job.groups import Identifier, identifier, members_of
from frtop_tui.job.issuer_words import issuer_text
from frtop_tui.job.naming import group_label, job_title, printable
from frtop_tui.text.plain import title_line
from frtop_tui.text.verdict import verdict_text

Event = dict[str, Any]
_Arguments = dict[tuple[object, ...], msgspec.Raw]
"""Of ops that have the same ones, encoded, by the identity of what they are made of."""
_STEP_LANE: Final = 901
_MARK_LANES: Final = {
    "step": (910, "steps"),
    "fetch": (920, "DataLoader"),
    "forward": (930, "phases (host)"),
    "backward": (930, "phases (host)"),
    "optimizer": (930, "phases (host)"),
}
"""The lane and its name, by kind. Marks of several threads may overlap: they get the next lane."""
_MOST_LANES: Final = 8
_VERDICT_PROCESS: Final = 1
_FIRST_RANK: Final = 10
"""Process ids of ranks begin here, as viewers take 0 for the idle process."""
_OUTSIDE: Final = "outside of groups"
_END_WORDS: Final = {
    "exact": "exact",
    "at most": "at most: frtop found it over then; it may have ended before",
    "failed": "failed",
    "pending": "pending: drawn up to the end of the trace",
    "unknown": "not known: only its beginning is drawn",
}


class _Slice(msgspec.Struct, frozen=True, gc=False):
    """An op in its lane, from `begin_ns` on; `took_ns` is the drawn length, known or not."""

    one: RankOp
    lane: int
    begin_ns: int
    took_ns: int


def chrome_trace(frame: Frame) -> bytes:
    """The whole file."""
    end_ns = frame.wall_ns
    placed = {
        rank: _slices_of(rank_ops(frame, view), end_ns)
        for rank, view in sorted(frame.ranks.items())
    }
    begins = [one.begin_ns for slices, _ in placed.values() for one in slices]
    begins += [
        mark.begin_ns + unix_offset_ns(frame, view)
        for view in frame.ranks.values()
        if view.snapshot is not None
        for mark in view.snapshot.marks[:1]
    ]
    base = min([*begins, end_ns])
    arguments: _Arguments = {}
    parts = [
        _encoded(_verdicts(frame, base)),
        _encoded(event for _, view in sorted(frame.ranks.items()) for event in _names(view)),
        *(
            _encoded(
                chain(
                    _lanes(rank, lanes),
                    (_slice(rank, one, base, arguments) for one in slices),
                    _marks(frame, frame.ranks[rank], base, end_ns),
                )
            )
            for rank, (slices, lanes) in placed.items()
        ),
        _encoded(_arrows(placed, base)),
    ]
    events = msgspec.Raw(b"[" + b",".join(filter(None, parts)) + b"]")
    document = {"displayTimeUnit": "ms", "otherData": _about(frame, base), "traceEvents": events}
    return msgspec.json.encode(document)


def _encoded(events: Iterable[Event]) -> bytes:
    """The events as the inside of a list: those of one rank at a time take little memory."""
    return msgspec.json.encode(list(events))[1:-1]


def _process(rank: int) -> int:
    return rank + _FIRST_RANK


def _us(at_ns: int, base: int) -> float:
    """Microseconds since the beginning of the trace: Unix times would lose their nanoseconds."""
    return (at_ns - base) / 1000


def _named(name: str, process: int, value: object, thread: int = 0) -> Event:
    key = "sort_index" if name.endswith("sort_index") else "labels" * name.endswith("labels")
    return {"ph": "M", "name": name, "pid": process, "tid": thread, "args": {key or "name": value}}


def _names(view: JudgedRank) -> Iterator[Event]:
    process = _process(view.rank)
    where = f" ({view.host})" if view.host else ""
    yield _named("process_name", process, printable(f"rank {view.rank}{where}"))
    yield _named("process_labels", process, printable(f"{view.state}, pid {view.identity.pid}"))
    yield _named("process_sort_index", process, process)


def _lanes(rank: int, lanes: Iterable[str]) -> Iterator[Event]:
    for lane, name in enumerate(lanes, 1):
        yield _named("thread_name", _process(rank), name, lane)
        yield _named("thread_sort_index", _process(rank), lane, lane)


def _slice(rank: int, one: _Slice, base: int, arguments: _Arguments) -> Event:
    op, kind = one.one.op, printable(one.one.kind)
    group, issuer, site = one.one.group, op.issuer, op.site
    key = (id(group), id(op.signature), id(issuer), id(site), one.one.end, op.dated)
    known = arguments.get(key)
    if known is None:
        known = arguments[key] = msgspec.Raw(msgspec.json.encode(_arguments(one.one)))
    number = f" #{op.number}" if op.number and not op.pseudo else ""
    pending = "PENDING " if one.one.end == "pending" else ""
    category = "message" if op.p2p else "call" if op.pseudo else "collective"
    return {
        "ph": "X",
        "name": f"{pending}{kind}{number}",
        "cat": f"pending,{category}" if pending else category,
        "pid": _process(rank),
        "tid": one.lane + 1,
        "ts": _us(one.begin_ns, base),
        "dur": one.took_ns / 1000,
        "args": known,
    }


def _arguments(one: RankOp) -> Event:
    op, signature = one.op, one.op.signature or wire.Signature("")
    site = op.site
    known = {
        "group": group_label(one.group.name, one.group.description) if one.group else None,
        "group ranks": one.group.ranks if one.group else None,
        "number is exact": None if one.group is None or one.group.exact else False,
        "reduce": signature.reduce,
        "root": signature.root,
        "peer": signature.peer,
        "inputs": tensors_text(signature.inputs),
        "outputs": tensors_text(signature.outputs),
        "issuer": issuer_text(op.issuer),
        **_issuer_arguments(one),
        "line": f"{site.file}:{site.line} ({site.function})" if site is not None else None,
        "end": _END_WORDS[one.end],
        "begin": None if op.dated else "at most: it was there at the first look",
    }
    return {
        key: printable(value) if isinstance(value, str) else value
        for key, value in known.items()
        if value not in (None, "")
    }


def _issuer_arguments(one: RankOp) -> Event:
    """Arguments for counting ops by module; empty if modules are not recorded."""
    op, issuer = one.op, one.op.issuer
    if issuer is None:
        return {}
    members = len(members_of(one.group.ranks)) if one.group is not None else 0
    return {
        "phase": issuer.phase,
        "module root": issuer.root,
        "module": issuer.path,
        "module part": issuer.part,
        "kind": op.signature.kind if op.signature is not None else "",
        "bytes": op_bytes(op.signature, members) if op.signature is not None else None,
    }


def _marks(frame: Frame, view: JudgedRank, base: int, end_ns: int) -> Iterator[Event]:
    """What the rank did besides ops, and the end of its process."""
    process, shift = _process(view.rank), unix_offset_ns(frame, view)
    known = view.snapshot.marks if view.snapshot is not None else ()
    marks = [*_steps(known), *known, *_of_status(view.status, known)]
    free_ns: dict[int, int] = {}
    for mark in sorted(marks, key=lambda one: one.begin_ns):
        if mark.kind == "note":
            at = _us(mark.begin_ns + shift, base)
            yield _instant(printable(f"note: {mark.text}"), process, at)
        elif mark.kind in _MARK_LANES and (mark.kind != "step" or mark.end_ns > mark.begin_ns):
            first, name = _MARK_LANES[mark.kind]
            lanes = range(first, first + _MOST_LANES)
            lane = next((n for n in lanes if free_ns.get(n, 0) <= mark.begin_ns), None)
            if lane is None:
                continue
            if lane not in free_ns:
                yield _named("thread_name", process, name, lane)
                yield _named("thread_sort_index", process, lane, lane)
            end = mark.end_ns + shift if mark.end_ns else end_ns
            free_ns[lane] = end - shift
            yield _mark(mark, process, lane, (mark.begin_ns + shift, end), base)
        elif mark.kind == "step":
            at = _us(mark.end_ns + shift, base)
            yield _instant(f"step {mark.number} ended", process, at)
    if view.exit_info is not None and view.exit_info.at_ns:
        at = _us(view.exit_info.at_ns + shift, base)
        yield _instant(f"process ended: {view.state}", process, at)


def _steps(marks: Iterable[wire.Mark]) -> Iterator[wire.Mark]:
    """Steps as marks that start where the previous step ended."""
    before: wire.Mark | None = None
    for mark in marks:
        if mark.kind == "step":
            if before is not None:
                yield msgspec.structs.replace(mark, begin_ns=before.end_ns)
            before = mark


def _of_status(status: wire.RankStatus | None, known: Iterable[wire.Mark]) -> Iterator[wire.Mark]:
    """The last step and fetch of a rank whose marks are unknown."""
    kinds = {mark.kind for mark in known}
    if status is not None and status.step_ns and "step" not in kinds:
        yield wire.Mark("step", status.step_ns, status.step_ns, status.step)
    fetch = status.fetch if status is not None else None
    if fetch is not None and fetch.begin_ns and "fetch" not in kinds:
        lasts = fetch.end_ns < fetch.begin_ns
        yield wire.Mark("fetch", fetch.begin_ns, 0 if lasts else fetch.end_ns)


def _mark(mark: wire.Mark, process: int, lane: int, times: tuple[int, int], base: int) -> Event:
    pending = "" if mark.end_ns else "PENDING "
    name = f"step {mark.number}" if mark.kind == "step" else mark.kind
    category = "data" if mark.kind == "fetch" else "step" if mark.kind == "step" else "phase"
    said = {"samples": mark.samples} if mark.samples else {}
    in_step = {"step": mark.number} if mark.number and mark.kind != "step" else {}
    return {
        "ph": "X",
        "name": f"{pending}{name}",
        "cat": f"pending,{category}" if pending else category,
        "pid": process,
        "tid": lane,
        "ts": _us(times[0], base),
        "dur": max(0, times[1] - times[0]) / 1000,
        "args": {**said, **in_step},
    }


def _instant(name: str, process: int, at_us: float, scope: str = "p") -> Event:
    return {
        "ph": "i",
        "name": name,
        "cat": "mark",
        "pid": process,
        "tid": _STEP_LANE,
        "ts": at_us,
        "s": scope,
    }


def _verdicts(frame: Frame, base: int) -> Iterator[Event]:
    """The verdicts above all ranks, from when they began to the end."""
    yield _named("process_name", _VERDICT_PROCESS, printable(f"frtop: {frame.health}"))
    yield _named("process_sort_index", _VERDICT_PROCESS, 0)
    for lane, verdict in enumerate(frame.verdicts, 1):
        since = verdict.since_ns - frame.now_ns + frame.wall_ns if verdict.since_ns else base
        since = min(max(since, base), frame.wall_ns)
        yield _named("thread_name", _VERDICT_PROCESS, f"verdict {lane}", lane)
        said = verdict_text(verdict, frame)
        yield {
            "ph": "X",
            "name": f"{said.kind}: {said.headline}",
            "cat": "verdict",
            "pid": _VERDICT_PROCESS,
            "tid": lane,
            "ts": _us(since, base),
            "dur": max(1.0, (frame.wall_ns - since) / 1000),
            "args": {"why": said.fact("why"), "next": said.next},
        }
    if frame.verdicts:
        at = _us(frame.wall_ns, base)
        yield _instant(printable(f"{frame.health}: seen by frtop"), _VERDICT_PROCESS, at, "g")


def _arrows(placed: Mapping[int, tuple[list[_Slice], object]], base: int) -> Iterator[Event]:
    """Arrows through all ranks of one collective, in the order in which they entered it.

    Only for groups whose numbers can be compared: those counted from their creation.
    """
    entered: dict[tuple[Identifier, int], list[tuple[int, _Slice]]] = defaultdict(list)
    for rank, (slices, _) in placed.items():
        for one in slices:
            group, op = one.one.group, one.one.op
            if group is not None and group.exact and op.number and not (op.p2p or op.pseudo):
                entered[identifier(group), op.number].append((rank, one))
    for flow, members in enumerate(entered.values(), 1):
        members.sort(key=lambda entry: entry[1].begin_ns)
        last = len(members) - 1
        for place, (rank, one) in enumerate(members if last else ()):
            event = {
                "ph": "s" if place == 0 else "f" if place == last else "t",
                "name": "same op",
                "cat": "op",
                "id": flow,
                "pid": _process(rank),
                "tid": one.lane + 1,
                "ts": _us(one.begin_ns, base),
            }
            yield event if place == 0 else {**event, "bp": "e"}


def _about(frame: Frame, base: int) -> Event:
    clocks = {
        printable(host.name): {
            "offset_to_ours_ns": host.clock_ns,
            "error_at_most_ns": host.clock_error_ns,
        }
        for host in frame.hosts
    }
    errors = [host.clock_error_ns for host in frame.hosts]
    known = bool(errors) and None not in errors
    return {
        "written_by": f"frtop {metadata.version('frtop')}",
        "job": printable(job_title(frame.job)) if frame.job is not None else "",
        "summary": printable(title_line(frame)),
        "begin_unix_ns": str(base),
        "end_unix_ns": str(frame.wall_ns),
        "clock": "the operator's wall clock; times of hosts are moved by their measured offset",
        "clock_error_at_most_ns": max(filter(None, errors), default=0) if known else None,
        "clocks": clocks,
        "not_seen": [printable(note.text) for note in frame.coverage.notes],
    }


def _lane_name(one: RankOp) -> str:
    """The group's name, or whatever else the op belongs to."""
    if one.group is None:
        return _OUTSIDE
    label = group_label(one.group.name, one.group.description)
    return printable(f"{label} ({one.group.backend})" if one.group.backend else label)


def _slices_of(ops: Iterable[RankOp], end_ns: int) -> tuple[list[_Slice], Sequence[str]]:
    """The slices of one rank, and the names of its lanes: slices in a lane may not overlap.

    Slices of pending ops end at `end_ns`.
    """
    lanes: list[str] = []
    free_at: list[int] = []  # when the last slice of each lane ends
    by_group: dict[object, list[int]] = {}
    slices = []
    for one in ops:
        took = _drawn_ns(one, end_ns)
        key = one.group.id if one.group is not None else None
        mine = by_group.setdefault(key, [])
        lane = next((lane for lane in mine if free_at[lane] <= one.begin_ns), None)
        if lane is None:
            lane = len(lanes)
            more = f" +{len(mine)}" if mine else ""
            lanes.append(f"{_lane_name(one)}{more}")
            free_at.append(0)
            mine.append(lane)
        free_at[lane] = one.begin_ns + took
        slices.append(_Slice(one, lane, one.begin_ns, took))
    return slices, lanes


def _drawn_ns(one: RankOp, end_ns: int) -> int:
    """The length of the slice; if nobody saw the op's end, it shows only the beginning."""
    if one.end == "pending":
        return max(1000, end_ns - one.begin_ns)
    return max(1000, one.end_ns - one.begin_ns) if one.end_ns else 1000

"""Statistics and histories of scripted ranks, about the same ops as their updates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from math import log2
from typing import Final

from frtop_probe import wire
from frtop_probe.history_columns import pack, pack_rows
from frtop_probe.ring.layout import Flag
from frtop_probe.statistics.call_columns import CallFields, pack_calls
from frtop_probe.statistics.samples import is_chosen
from frtop_tui.demo.scripted.ranks import HISTORY_OPS, HostRanks
from frtop_tui.demo.scripted.script import GROUP_NAMES, JITTER_NS, Position

MOST_SAMPLES: Final = 1024
MOST_STEPS: Final = 1024
SAMPLES: Final = 16
"""Samples in each step of each rank."""


@dataclass(frozen=True, slots=True)
class _Window:
    """Steps that ended within the window, with all their ops."""

    first: int
    last: int
    level: int


def history(host: HostRanks, rank: int, now_ns: int, request: wire.HistoryRequest) -> wire.History:
    """The ops that a ring would still have, and the marks of their steps."""
    most = min(request.limit or HISTORY_OPS, HISTORY_OPS)
    at = host.script.position(rank, host.levels[rank], now_ns)
    ops = host.last_ops(rank, now_ns, HISTORY_OPS if request.group else most)
    if request.group:
        ops = [
            op for op in ops
            if op.group == request.group and request.first <= op.number <= request.last
        ][-most:]  # fmt: skip
    sites, signatures = host.sites, list(host.signatures)
    rows = []
    for op in ops:
        place = (op.sequence - 1) % len(sites)
        if op.signature != signatures[place]:
            assert op.signature is not None
            signatures.append(op.signature)
        number = signatures.index(op.signature) if op.signature != signatures[place] else place
        rows.append((
            op.sequence, op.group, op.number, number + 1, place + 1, op.issued_ns,
            op.done_ns - op.issued_ns if op.done_ns else 0, op.thread, int(Flag.SYNC), 0, 0, 0, 0,
        ))  # fmt: skip
    steps = sorted({(op.sequence - 1) // len(sites) for op in ops} | {at.step})
    marks = tuple(mark for step in steps for mark in _marks(host, rank, step, at, now_ns))
    columns = pack_rows(tuple(zip(*rows, strict=True))) if rows else None
    return wire.History(tuple(signatures), sites, columns, marks=marks)


def _marks(host: HostRanks, rank: int, step: int, at: Position, now_ns: int) -> Iterator[wire.Mark]:
    """The phases of a step that have begun, and the step itself if it is over."""
    script = host.script
    until = now_ns if step < at.step else host.came_to_ns(rank, at, now_ns)
    for kind, begin, end in script.phases(host.levels[rank], step):
        if begin <= until:
            yield wire.Mark(kind, begin + host.skew_ns, end + host.skew_ns if end <= until else 0)
    if step < at.step:
        yield wire.Mark(
            "step", script.step_ns(step) + host.skew_ns, script.step_ns(step + 1) + host.skew_ns,
            step, samples=SAMPLES,
        )  # fmt: skip


class Counts:
    """Statistics of a host's ranks. Counts once what ranks of one level share."""

    def __init__(self, host: HostRanks) -> None:
        self._host = host
        self._calls: dict[_Window, wire.CallColumns | None] = {}
        self._steps: dict[tuple[_Window, int], wire.StepTimes] = {}

    def answer(self, request: wire.StatisticsRequest, now_ns: int) -> wire.StatisticsResponse:
        """What the ranks did within the requested window."""
        host = self._host
        until = min(request.until_ns or now_ns + host.skew_ns, now_ns + host.skew_ns)
        self._calls.clear()
        self._steps.clear()
        ranks = tuple(
            self._rank(key - 1, request, until - host.skew_ns)
            for key in request.keys
            if key - 1 in host.ranks
        )
        return wire.StatisticsResponse(
            request.id, host.name, request.since_ns, until, ranks, host.sites
        )

    def _rank(self, rank: int, request: wire.StatisticsRequest, until: int) -> wire.RankStatistics:
        host, script = self._host, self._host.script
        level = host.levels[rank]
        at = script.position(rank, level, until)
        oldest = max(0, at.step - HISTORY_OPS // len(script.program) + 1)
        since = request.since_ns - host.skew_ns
        # A step belongs to the window in which it ends, so slices of time share none.
        first = max(oldest, self._first_ending(since))
        last = min(at.step, self._first_ending(until))
        window = _Window(first, max(first, last), level)
        if window not in self._calls:
            self._calls[window] = self._count(window)
        calls = self._calls[window]
        steps = None
        if request.steps and window.first < window.last:
            most = (window, min(request.steps, MOST_STEPS))
            if most not in self._steps:
                self._steps[most] = self._split(*most)
            steps = self._steps[most]
        samples: tuple[wire.SampledOps, ...] = ()
        if request.samples:
            most_samples = min(request.samples, MOST_SAMPLES)
            samples = self._samples(rank, window, most_samples)
        return wire.RankStatistics(
            rank + 1,
            max(request.since_ns, script.step_ns(oldest) + host.skew_ns),
            samples=samples,
            steps=steps,
            rows=calls if request.calls or request.samples else None,
        )

    def _first_ending(self, at_ns: int) -> int:
        """The first step that ends at a time or later."""
        step = max(0, self._host.script.step_at(at_ns))
        return step if self._host.script.step_ns(step + 1) >= at_ns else step + 1

    def _took(self, window: _Window, step: int, op: int) -> int:
        """How long an op takes at this level, from the middle of all ranks' jitter."""
        script = self._host.script
        issued = script.issue_ns(0, window.level, step, op)
        jitter = (step * 104_729 + op * 1_299_709) % JITTER_NS
        return script.end_ns(window.level, step, op) - (issued - jitter + JITTER_NS // 2)

    def _count(self, window: _Window) -> wire.CallColumns | None:
        """Ops by line that are over within whole steps."""
        script = self._host.script
        steps = range(window.first, window.last)
        slow = [step for step in steps if step >= script.fault_step]
        rows: list[CallFields] = []
        for site in sorted({(op.line, op.group) for op in script.program}):
            ops = [n for n, op in enumerate(script.program) if (op.line, op.group) == site]
            planned, size = script.program[ops[0]], self._host.bytes[ops[0]]
            buckets: Counter[int] = Counter()
            total = longest = 0
            for some in (slow, steps[: len(steps) - len(slow)]):
                for op in ops if some else ():
                    took = self._took(window, some[0], op)
                    buckets[int(wire.OCTAVE * log2(took))] += len(some)
                    total += took * len(some)
                    longest = max(longest, took)
            count = len(steps) * len(ops)
            if not count:
                continue
            rows.append((
                planned.kind, planned.group, ops[0] + 1, size.bit_length(), False, False, count,
                count * size, count, total, longest, 0, 0, total, buckets,
            ))  # fmt: skip
        return pack_calls(rows)

    def _split(self, window: _Window, most: int) -> wire.StepTimes:
        script, skew = self._host.script, self._host.skew_ns
        steps = list(range(window.first, window.last))[-most:]
        ends = [script.step_ns(step + 1) + skew for step in steps]
        took = [script.step_ns(step + 1) - script.step_ns(step) for step in steps]
        blocked = [
            sum(self._took(window, step, op) for op in range(len(script.program))) for step in steps
        ]
        phases = [script.phases(window.level, step) for step in steps]
        lasted = zip(
            *([one.end_ns - one.begin_ns for one in those] for those in phases), strict=True
        )
        data, forward, backward, optimizer = map(pack, lasted)
        return wire.StepTimes(
            pack(steps), pack(ends), pack(took), data, pack(blocked), pack(blocked),
            forward, backward, optimizer, pack([SAMPLES] * len(steps)),
            len(steps), phases=True, fetches=True,
        )  # fmt: skip

    def _samples(self, rank: int, window: _Window, most: int) -> tuple[wire.SampledOps, ...]:
        """At most `most` ops of each group, chosen by number like in real ranks."""
        script, host = self._host.script, self._host
        lines: dict[tuple[int, int], int] = {}
        if (calls := self._calls[window]) is not None:
            places = zip(calls.group, calls.site, strict=True)
            lines = {place: n for n, place in enumerate(places, 1)}
        of_line = {op.line: n + 1 for n, op in reversed(list(enumerate(script.program)))}
        found = []
        for group in GROUP_NAMES:
            ops = [
                (script.number(step, op), step, op)
                for step in range(window.first, window.last)
                for op, planned in enumerate(script.program)
                if planned.group == group
            ]
            stride = 1
            while len(ops) > most:
                stride *= 2
                ops = [one for one in ops if is_chosen(one[0], stride)]
            rows = []
            for number, step, op in ops:
                issued = script.issue_ns(rank, window.level, step, op)
                took = script.end_ns(window.level, step, op) - issued
                call = lines.get((group, of_line[script.program[op].line]), 0)
                rows.append((number, issued + host.skew_ns, took, host.bytes[op], call))
            if rows:
                number_of, issued_ns, took_ns, size, row = map(pack, zip(*rows, strict=True))
                found.append(
                    wire.SampledOps(
                        group, stride, number_of, issued_ns, took_ns, size, row, len(rows)
                    )
                )
        return tuple(found)

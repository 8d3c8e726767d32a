"""Splits the training steps of a rank: data, communication, phases.

A step lasts from the end of the previous one to its own end. Communication's share has two bounds:
how long communication certainly blocked the thread that steps, and how long any op was pending. The
bubble of a pipeline is the part of it in which that thread waited for messages.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from frtop_probe import wire
from frtop_probe.history_columns import pack
from frtop_probe.statistics.calls import OpFields

MAX_STEPS: Final = 4096
SPANS: Final = ("fetch", "forward", "backward", "optimizer")
Interval = tuple[int, int]


class StepEnd(NamedTuple):
    """The end of a step: number, time, thread, and number of samples (0: the job did not say)."""

    number: int
    at_ns: int
    thread: int = 0
    samples: int = 0


class StepSplitter:
    """Takes the ops and marks of one rank, in any order, and splits its steps."""

    def __init__(self, now_ns: int) -> None:
        """An op that has not ended is pending until `now_ns`."""
        self._now = now_ns
        self._ends: list[StepEnd] = []
        self._spans: defaultdict[str, list[Interval]] = defaultdict(list)
        self._pending: list[Interval] = []
        self._blocked: defaultdict[int, list[Interval]] = defaultdict(list)
        self._bubbles: defaultdict[int, list[Interval]] = defaultdict(list)
        self._messages = self._unseen = 0
        self.fetches = self.phases = False

    def add_end(self, end: StepEnd) -> None:
        self._ends.append(end)

    def add_span(self, kind: str, begin_ns: int, end_ns: int) -> None:
        self._spans[kind].append((begin_ns, end_ns))

    def add_ops(self, ops: OpFields) -> None:
        """Adds ops in order of issue."""
        if not ops.issued:
            return
        now, joined = self._now, self._pending
        begin, end = joined.pop() if joined else (ops.issued[0], ops.issued[0])
        for issued, took in zip(ops.issued, ops.took, strict=True):
            over = issued + took if took > 0 else issued - took if took else now
            if issued > end:
                joined.append((begin, end))
                begin, end = issued, over
            elif over > end:
                end = over
        joined.append((begin, end))
        messages = [one for one in ops.classes if one.message]
        self._messages += len(messages)
        self._unseen += sum(1 for one in messages if not (one.exact or one.late))
        blocked, bubbles = self._blocked, self._bubbles
        for place in [place for place, one in enumerate(ops.classes) if one.exact]:
            took, one = ops.took[place], ops.classes[place]
            waited = took if one.sync else ops.waited[place]
            if took > 0 < waited:
                end = ops.issued[place] + took
                blocked[ops.thread[place]].append((end - waited, end))
                if one.message:
                    bubbles[ops.thread[place]].append((end - waited, end))

    def build(self, since_ns: int, until_ns: int, most: int) -> wire.StepTimes | None:
        """Returns the newest `most` steps that ended within the window; None if there are none."""
        ends = sorted(self._ends, key=lambda end: end.at_ns)
        steps = [
            (before.at_ns, end)
            for before, end in pairwise(ends)
            if since_ns <= end.at_ns < until_ns
        ][-min(most, MAX_STEPS) :]
        if not steps:
            return None
        bounds = [(begin, end.at_ns) for begin, end in steps]
        pending = overlaps(bounds, self._pending)
        spans = {kind: overlaps(bounds, self._spans[kind]) for kind in SPANS}

        def of_stepping_thread(intervals: Mapping[int, Iterable[Interval]]) -> list[int]:
            found = {
                thread: overlaps(bounds, intervals.get(thread, ()))
                for thread in {end.thread for _, end in steps}
            }
            return [found[end.thread][place] for place, (_, end) in enumerate(steps)]

        return wire.StepTimes(
            number=pack([end.number for _, end in steps]),
            end_ns=pack([end.at_ns for _, end in steps]),
            took_ns=pack([end - begin for begin, end in bounds]),
            data_ns=pack(spans["fetch"]),
            blocked_ns=pack(of_stepping_thread(self._blocked)),
            pending_ns=pack(pending),
            forward_ns=pack(spans["forward"]),
            backward_ns=pack(spans["backward"]),
            optimizer_ns=pack(spans["optimizer"]),
            samples=pack([end.samples for _, end in steps]),
            count=len(steps),
            phases=self.phases,
            fetches=self.fetches,
            bubble_ns=pack(of_stepping_thread(self._bubbles)),
            bubbles=0 < self._messages >= 2 * self._unseen,
        )


def overlaps(bounds: Sequence[Interval], intervals: Iterable[Interval]) -> list[int]:
    """Returns how much of each of `bounds` the intervals cover together, in ns.

    Bounds are in order and do not overlap; intervals may be in any order and overlap.
    """
    found, place, count = [0] * len(bounds), 0, len(bounds)
    for begin, end in _joined(intervals):
        while place < count and bounds[place][1] <= begin:
            place += 1
        at = place
        while at < count and bounds[at][0] < end:
            since, until = bounds[at]
            found[at] += min(end, until) - max(begin, since)
            at += 1
        if place == count:
            break
    return found


def _joined(intervals: Iterable[Interval]) -> list[Interval]:
    joined: list[Interval] = []
    last_begin = last_end = 0
    first = True
    for begin, end in sorted(intervals):
        if first:
            last_begin, last_end, first = begin, end, False
        elif begin > last_end:
            joined.append((last_begin, last_end))
            last_begin, last_end = begin, end
        elif end > last_end:
            last_end = end
    if not first and last_end > last_begin:
        joined.append((last_begin, last_end))
    return joined

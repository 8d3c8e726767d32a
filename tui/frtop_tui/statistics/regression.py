"""Whether a run is slower than another by more than limits allow, or whether that is undecided."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from math import floor, inf, sqrt
from statistics import NormalDist, median
from typing import Final, Literal, NamedTuple

from frtop_tui.job.statistics import JobStatistics, SampledOp, StepSplit
from frtop_tui.statistics.comparison import Line, line_of_op, line_of_row
from frtop_tui.statistics.limits import LINE_FIGURES, Limit

Result = Literal["within", "above", "undecided"]
MOST_LINES: Final = 64
"""How many lines get a check: those whose ops took the most time. With more checks, each needs more
evidence."""


class Check(NamedTuple):
    """One figure against its limit.

    `growth` is the share by which it has grown, at least and at most; `excess_ns` is how far it is
    above the limit; None with too few samples. `why` says why nothing is decided. `samples` has the
    counts of both sides.
    """

    limit: Limit
    result: Result
    line: Line | None = None
    before_ns: int | None = None
    after_ns: int | None = None
    growth: tuple[float, float] | None = None
    excess_ns: tuple[float, float] | None = None
    samples: tuple[int, int] = (0, 0)
    why: str = ""


class _Samples(NamedTuple):
    """Values of one figure in order of time, before and after, in ns."""

    limit: Limit
    before: Sequence[int] | None
    after: Sequence[int] | None
    line: Line | None = None


def checked(
    before: JobStatistics, after: JobStatistics, limits: Sequence[Limit]
) -> tuple[Check, ...]:
    """One check per limit, or per line, in the order of the limits."""
    samples = [one for limit in limits for one in _samples(before, after, limit)]
    return tuple(_check(one, len(samples)) for one in samples)


def overall(checks: Sequence[Check]) -> Result:
    """Above if one check is; undecided if one is."""
    results = {one.result for one in checks}
    return "above" if "above" in results else "undecided" if "undecided" in results else "within"


def _check(samples: _Samples, checks: int) -> Check:
    limit, line = samples.limit, samples.line
    if not samples.before or not samples.after:
        sides = (samples.before, "before"), (samples.after, "after")
        gaps = {when: "not recorded" if one is None else "no step that all ranks reported"
                for one, when in sides if not one}  # fmt: skip
        why = ", ".join(f"{text} {when}" for when, text in gaps.items())
        if line is None and limit.figure in LINE_FIGURES:
            why = "no line has ops that all members reported in both runs"
        return Check(limit, "undecided", line, why=why)
    medians = round(median(samples.before)), round(median(samples.after))
    counts = len(samples.before), len(samples.after)
    first, second = blocks(samples.before), blocks(samples.after)
    grown = growth(first, second, checks)
    allowed = [value * (1 + limit.share) + limit.ns for value in first]
    above = excess(allowed, second, checks)
    result: Result = "undecided"
    why = ""
    if above is None:
        why = f"too few samples: {min(counts)}, but at least {FEWEST} are needed"
    elif above[0] > 0:
        result = "above"
    elif above[1] <= 0:
        result = "within"
    else:
        why = "the spread is larger than the difference from the limit"
    return Check(limit, result, line, *medians, grown, above, counts, why)


def _samples(before: JobStatistics, after: JobStatistics, limit: Limit) -> list[_Samples]:
    if limit.figure not in LINE_FIGURES:
        value = _STEPS[limit.figure]
        return [_Samples(limit, _of_steps(before, value), _of_steps(after, value))]
    first, second = _of_lines(before, limit.figure), _of_lines(after, limit.figure)
    # Samples alone do not show which lines matter: one op per second is sampled like a thousand.
    shared = [line for line in _by_time(after) if line in first and line in second]
    found = [_Samples(limit, first[line], second[line], line) for line in shared[:MOST_LINES]]
    return found or [_Samples(limit, None, None)]


_STEPS: Final[Mapping[str, Callable[[StepSplit], int | None]]] = {
    "step": lambda step: step.took_ns,
    "data": lambda step: step.data_ns,
    "forward": lambda step: step.forward_ns,
    "backward": lambda step: step.backward_ns,
    "optimizer": lambda step: step.optimizer_ns,
    "communication": lambda step: step.pending_ns,
    "own": lambda step: step.took_ns - step.pending_ns,
}


def _of_steps(
    statistics: JobStatistics, value: Callable[[StepSplit], int | None]
) -> list[int] | None:
    """For each step that all ranks reported, the largest value.

    Ranks wait for each other in each step, so their values are not independent samples. None if a
    rank does not record the figure.
    """
    by_number: defaultdict[int, list[int]] = defaultdict(list)
    for steps in statistics.steps.values():
        for step in steps:
            figure = value(step)
            if figure is None:
                return None
            by_number[step.number].append(figure)
    if not by_number:
        return None
    ranks = sum(1 for steps in statistics.steps.values() if steps)
    return [max(by_number[n]) for n in sorted(by_number) if len(by_number[n]) == ranks]


def _of_lines(statistics: JobStatistics, figure: str) -> dict[Line, list[int]]:
    ops: defaultdict[Line, list[SampledOp]] = defaultdict(list)
    for group in statistics.groups:
        for op in group.arrivals:
            if op.complete and op.site is not None and _value(op, figure) is not None:
                ops[line_of_op(op, len(group.members))].append(op)
    return {
        line: [
            value
            for op in sorted(several, key=lambda op: op.last_ns)
            if (value := _value(op, figure)) is not None
        ]
        for line, several in ops.items()
    }


def _value(op: SampledOp, figure: str) -> int | None:
    """None if the hosts' clocks are not accurate enough."""
    if op.error_ns is None:
        return None
    if figure == "skew":
        # Within the clock error, ranks may have arrived together.
        return op.skew_ns if op.skew_ns > op.error_ns else 0
    return op.transfer_ns


def _by_time(statistics: JobStatistics) -> list[Line]:
    """The lines, those whose ops took the most time first."""
    rows = sorted(statistics.calls, key=lambda row: -row.total_ns)
    return list(dict.fromkeys(line_of_row(row) for row in rows if not row.p2p))


ERROR: Final = 0.01
"""False alarm rate of all checks of a comparison together."""
BLOCKS: Final = 32
"""More blocks would be more precise than the run itself, and the cost is quadratic."""
SHORTEST: Final = 2
"""Values of a block: a fast step often follows a slow one."""
FEWEST_BLOCKS: Final = 8
"""With fewer, an interval is less certain than it claims."""
FEWEST: Final = SHORTEST * FEWEST_BLOCKS

Interval = tuple[float, float]


def blocks(values: Sequence[int]) -> list[float]:
    """The medians of blocks of values that follow each other, of nearly equal length."""
    count = min(BLOCKS, len(values) // SHORTEST)
    if not count:
        return []
    ends = [len(values) * place // count for place in range(count + 1)]
    return [float(median(values[begin:end])) for begin, end in pairwise(ends)]


def growth(before: Sequence[float], after: Sequence[float], checks: int = 1) -> Interval | None:
    """The share by which values have grown, at least and at most; None with too few values.

    Values are independent and not negative; `checks` intervals are judged together.
    """
    return _interval(before, after, checks, _ratio)


def excess(before: Sequence[float], after: Sequence[float], checks: int = 1) -> Interval | None:
    """How much larger the values after are than those before, at least and at most."""
    return _interval(before, after, checks, lambda first, second: second - first)


def _ratio(first: float, second: float) -> float:
    if first <= 0:
        return inf if second > 0 else 0.0
    return second / first - 1


def _interval(
    before: Sequence[float],
    after: Sequence[float],
    checks: int,
    pair: Callable[[float, float], float],
) -> Interval | None:
    several, others = len(before), len(after)
    if min(several, others) < FEWEST_BLOCKS:
        return None
    z = NormalDist().inv_cdf(1 - ERROR / checks / 2)
    middle = several * others / 2
    outside = floor(middle - z * sqrt(several * others * (several + others + 1) / 12))
    if outside < 1:
        return None
    pairs = sorted(pair(first, second) for first in before for second in after)
    return pairs[outside - 1], pairs[-outside]

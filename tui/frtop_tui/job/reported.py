"""Values that the job reports itself, such as its loss, compared between its ranks. Pure.

Only values of one step are compared, and only if ranks have reported the name equally often in it:
a rank may be between two micro-batches. Equal means the same bits. What is found are facts, and no
verdict of a hang.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Final, Literal

from msgspec import Struct

from frtop_probe import wire
from frtop_probe.ring.layout import MAX_REPORT_NAME, MAX_REPORT_NAMES
from frtop_probe.statistics.reported_values import ReportedValue, joined, unpacked
from frtop_tui.job.model import Rank

FEWEST_STEPS: Final = 3
"""In fewer steps, equal values may be chance."""
FEWEST_RANKS: Final = 3
"""Of fewer ranks, no majority shows which one differs."""
MOST_NAMES: Final = 64
"""Names of all ranks together that are compared."""
MOST_VALUES: Final = 16_384
"""Of a name on all ranks: with many ranks, fewer steps are compared."""
_OVER: Final = ("dead", "done")
_STEPS: Final = (8, 64)

Values = Mapping[int, float]
"""By rank, of one step."""


class ReportedFinding(Struct, frozen=True):
    """What is unusual about the values of a name.

    | kind | |
    |---|---|
    | `not finite` | NaN or an infinity on `ranks` at `step`, and finite values on the `others` |
    | `differs` | `ranks` differ at `step`; elsewhere, all ranks report equal values in all steps |
    | `constant` | the values of both ranks never change, and are not equal |

    `steps` is in how many of the `compared` steps.
    """

    kind: Literal["not finite", "differs", "constant"]
    name: str
    ranks: tuple[int, ...]
    value: float
    step: int
    steps: int
    compared: int
    others: tuple[int, ...] = ()
    other: float | None = None
    """A value of the others at that step, if it is known."""


class ReportedRow(Struct, frozen=True):
    """One name at the newest `step` that its ranks have in common; `step` is None without one."""

    name: str
    ranks: tuple[int, ...]
    """All that have reported it."""
    step: int | None
    values: Values
    compared: int
    """How many steps were compared."""
    findings: tuple[ReportedFinding, ...] = ()

    @property
    def finite(self) -> list[tuple[float, int]]:
        """Finite values and their ranks, lowest first."""
        return sorted((one, rank) for rank, one in self.values.items() if math.isfinite(one))

    @property
    def middle(self) -> float | None:
        """The median of the finite values."""
        known = [value for value, _ in self.finite]
        return median(known) if known else None

    @property
    def not_finite(self) -> dict[int, float]:
        """Other values, by rank."""
        return {rank: one for rank, one in self.values.items() if not math.isfinite(one)}

    @property
    def are_equal(self) -> bool | None:
        """Whether all ranks have the same value; None with less than two ranks."""
        return len(set(map(_bits, self.values.values()))) == 1 if len(self.values) > 1 else None


def merged_values(
    known: Sequence[wire.ReportedValues], news: Iterable[wire.ReportedValues]
) -> tuple[wire.ReportedValues, ...]:
    """The values of a rank with new ones, which may repeat known ones."""
    by_name = {one.name: one for one in known}
    for one in news:
        name = one.name[:MAX_REPORT_NAME]
        if name not in by_name and len(by_name) >= MAX_REPORT_NAMES:
            continue
        by_name[name] = joined(by_name.get(name), one, name, len(by_name))
    return tuple(by_name.values())


def latest_value(sent: wire.ReportedValues) -> ReportedValue | None:
    """The newest value of a name on a rank."""
    return next(reversed(unpacked(sent, 1)), None)


def reported_rows(ranks: Mapping[int, Rank]) -> list[ReportedRow]:
    """A row for each name, in the order in which the first rank reported them."""
    by_name: dict[str, dict[int, wire.ReportedValues]] = {}
    for rank, view in sorted(ranks.items()):
        for one in view.reported:
            if one.name in by_name or len(by_name) < MOST_NAMES:
                by_name.setdefault(one.name, {})[rank] = one
    living = {rank for rank, view in ranks.items() if view.state not in _OVER} or set(ranks)
    return [_row(name, of, living) for name, of in by_name.items()]


def _row(name: str, sent: Mapping[int, wire.ReportedValues], living: set[int]) -> ReportedRow:
    fewest, most = _STEPS
    each = max(fewest, min(most, MOST_VALUES // len(sent)))
    series = {rank: unpacked(one, each) for rank, one in sent.items()}
    by_step: dict[int, dict[int, ReportedValue]] = {}
    for rank, values in series.items():
        for one in values:
            by_step.setdefault(one.step, {})[rank] = one
    steps = {step: _comparable(found) for step, found in sorted(by_step.items())}
    several = {step: values for step, values in steps.items() if len(values) > 1}
    step = _shown_step(steps, living & sent.keys() or set(sent))
    findings = [
        *_not_finite(name, several, sent),
        *_differing(name, several, set(sent)),
    ]
    return ReportedRow(
        name, tuple(sent), step, steps[step] if step is not None else {}, len(several),
        tuple(findings),
    )  # fmt: skip


def _comparable(found: Mapping[int, ReportedValue]) -> Values:
    """The values of ranks that have reported the name equally often in the step."""
    counts = Counter(one.times for one in found.values())
    (usual, _), *_ = counts.most_common(1)
    return {rank: one.value for rank, one in found.items() if one.times == usual}


def _shown_step(steps: Mapping[int, Values], ranks: set[int]) -> int | None:
    """The newest step that most of these ranks have."""
    have = {step: len(ranks & values.keys()) for step, values in steps.items()}
    if len(ranks) > 1:
        have = {step: count for step, count in have.items() if count > 1}
    return max(have, key=lambda step: (have[step], step), default=None)


def _not_finite(
    name: str,
    steps: Mapping[int, Values],
    sent: Mapping[int, wire.ReportedValues],
) -> list[ReportedFinding]:
    """Ranks with values that are not finite where those of others are: one finding a rank."""
    found: dict[int, list[tuple[int, float, tuple[int, ...], float | None]]] = {}
    for step, values in steps.items():
        finite = [rank for rank, value in values.items() if math.isfinite(value)]
        for rank, value in values.items() if len(finite) < len(values) else ():
            if finite and not math.isfinite(value):
                found.setdefault(rank, []).append((step, value, tuple(finite), values[finite[0]]))
    for rank, reported in sent.items():
        for one in unpacked(reported) if reported.not_finite else ():
            if math.isfinite(one.value) or one.step in steps:
                continue
            # Others no longer have the step. Those without any such value had a finite one.
            others = tuple(
                other for other, of in sent.items()
                if other != rank and not of.not_finite and of.steps
                and of.first <= one.step <= of.steps[-1]
            )  # fmt: skip
            if others:
                found.setdefault(rank, []).append((one.step, one.value, others, None))
    findings = []
    for rank, all_of_it in found.items():
        step, value, others, other = min(all_of_it, key=lambda one: one[0])
        findings.append(
            ReportedFinding("not finite", name, (rank,), value, step, len(all_of_it), len(steps),
                            others, other)
        )  # fmt: skip
    return sorted(findings, key=lambda one: (one.step, one.ranks))


def _differing(name: str, steps: Mapping[int, Values], ranks: set[int]) -> list[ReportedFinding]:
    """Ranks that differ where all others agree, in all steps."""
    if len(steps) < FEWEST_STEPS:
        return []
    if len(ranks) < FEWEST_RANKS:
        return _constant(name, steps)
    odd: dict[int, list[tuple[int, float, float, tuple[int, ...]]]] = {}
    for step, values in steps.items():
        counts = Counter(map(_bits, values.values()))
        (usual, count), *_ = counts.most_common(1)
        if len(values) - count > max(1, len(values) // 4) or count < 2:
            return []  # as a loss: it differs on every rank
        same = tuple(rank for rank, value in values.items() if _bits(value) == usual)
        for rank, value in values.items():
            if _bits(value) != usual:
                odd.setdefault(rank, []).append((step, value, values[same[0]], same))
    findings = []
    for rank, differing in sorted(odd.items()):
        step, value, other, same = differing[-1]
        if math.isfinite(value) or not math.isfinite(other):  # else it is in a finding already
            findings.append(
                ReportedFinding("differs", name, (rank,), value, step, len(differing), len(steps),
                                same, other)
            )  # fmt: skip
    return findings


def _constant(name: str, steps: Mapping[int, Values]) -> list[ReportedFinding]:
    """Two ranks whose values never change and are not equal, or differ in a few steps only."""
    differing = {step: values for step, values in steps.items() if _differ(values)}
    if not differing:
        return []
    (step, values) = list(differing.items())[-1]
    (first, value), (second, other) = sorted(values.items())
    if not (math.isfinite(value) and math.isfinite(other)):
        return []
    unchanged = all(
        len({_bits(of[rank]) for of in steps.values() if rank in of}) == 1
        for rank in (first, second)
    )
    if unchanged or len(differing) <= len(steps) // 4:
        kind: Literal["constant", "differs"] = "constant" if unchanged else "differs"
        ranks = (first,) if unchanged else (first, second)
        return [
            ReportedFinding(kind, name, ranks, value, step, len(differing), len(steps),
                            (second,), other)
        ]  # fmt: skip
    return []


def _differ(values: Values) -> bool:
    return len(set(map(_bits, values.values()))) > 1


def _bits(value: float) -> str:
    """What two values have in common if they are equal: NaN equals NaN, and 0.0 is not -0.0."""
    return repr(value)

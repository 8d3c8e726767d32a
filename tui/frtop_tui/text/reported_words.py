"""Values that the job reports itself: a row for each name, and what is unusual about them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from frtop_probe.ring.rank_ranges import fold
from frtop_tui.diagnosis.model import Frame
from frtop_tui.job.model import Rank
from frtop_tui.job.naming import printable
from frtop_tui.job.reported import (
    ReportedFinding,
    ReportedRow,
    latest_value,
    reported_rows,
)
from frtop_tui.job.units import NOT_KNOWN, counted
from frtop_tui.text.document import aligned

HEAD: Final = ("name", "step", "least", "median", "most", "ranks", "between ranks")
TITLE: Final = "reported by the job"
NOTHING: Final = "no values are reported: see frtop_probe.report(), or frtop run --report"
_WORDS: Final = frozenset({"name", "ranks", "between ranks"})


def figure(value: float | None) -> str:
    """A value in up to six digits; `nan`, `inf` and `-inf` as they are."""
    return NOT_KNOWN if value is None else f"{value:.6g}"


def both_figures(one: float, other: float) -> tuple[str, str]:
    """Two values, in as many digits as they need to look different."""
    short = figure(one), figure(other)
    return short if short[0] != short[1] else (repr(one), repr(other))


def reported_cells(rows: Iterable[ReportedRow]) -> list[tuple[str, ...]]:
    """The cells of rows, with `HEAD` as their titles."""
    return [
        (
            row.name,
            NOT_KNOWN if row.step is None else f"{row.step:,}",
            figure(row.finite[0][0] if row.finite else None),
            figure(row.middle),
            figure(row.finite[-1][0] if row.finite else None),
            fold(row.ranks),
            between_words(row),
        )
        for row in rows
    ]


def between_words(row: ReportedRow) -> str:
    """Whether the ranks differ at the step of the row, and in which steps one is unusual."""
    parts = [_brief(one, row.step) for one in row.findings]
    if row.not_finite and not any(
        one.kind == "not finite" and one.step == row.step for one in row.findings
    ):
        parts.append(_not_finite_words(row))
    if row.step is None:
        parts.append("one rank" if len(row.ranks) == 1 else "no step in common")
    elif not any(one.kind != "not finite" for one in row.findings):
        equal = row.are_equal
        parts.append("one rank" if equal is None else "equal" if equal else "differ")
    return "; ".join(parts)


def _not_finite_words(row: ReportedRow) -> str:
    words = sorted({figure(value) for value in row.not_finite.values()})
    every = len(row.not_finite) == len(row.values)
    where = "all ranks" if every and len(row.values) > 1 else f"rank {fold(row.not_finite)}"
    return f"{' and '.join(words)}: {where}"


def _brief(one: ReportedFinding, step: int | None) -> str:
    ranks = f"rank {fold(one.ranks)}"
    if one.kind == "not finite":
        return f"{figure(one.value)}: {ranks}, step {one.step:,}"
    if one.kind == "constant":
        return "unequal constants"
    differs = "ranks differ" if len(one.ranks) > 1 else f"only {ranks} differs"
    return differs if one.step == step else f"{differs}, at step {one.step:,}"


def reported_finding(one: ReportedFinding) -> str:
    """A finding as a sentence. It is a fact: frtop does not know what the values mean."""
    ranks = f"rank {fold(one.ranks)}"
    others = counted(len(one.others), "other rank")
    if one.kind == "not finite":
        more = f", and in {counted(one.steps - 1, 'other step')}" if one.steps > 1 else ""
        where = f" ({figure(one.other)} on rank {one.others[0]})" if one.other is not None else ""
        has = "has a finite value" if len(one.others) == 1 else "have finite values"
        return (
            f"{one.name}: {ranks} reported {figure(one.value)} at step {one.step:,}{more};"
            f" there {others} {has}{where}"
        )
    value, other = both_figures(one.value, math.nan if one.other is None else one.other)
    if one.kind == "constant":
        return (
            f"{one.name}: {ranks} reported {value} and rank {fold(one.others)} {other} in each of"
            f" {counted(one.compared, 'step')}; of two ranks, frtop cannot tell which one is odd"
        )
    if len(one.ranks) > 1:
        return (
            f"{one.name}: ranks {fold(one.ranks)} differ in {one.steps} of"
            f" {counted(one.compared, 'step')}, last at step {one.step:,} ({value}, {other})"
        )
    return (
        f"{one.name}: {ranks} differs in {one.steps} of {counted(one.compared, 'step')}, last at"
        f" step {one.step:,}: {value}, while {others} {_have(one)} {other}"
    )


def _have(one: ReportedFinding) -> str:
    return "has" if len(one.others) == 1 else "have"


def finding_lines(rows: Iterable[ReportedRow]) -> list[str]:
    """All findings as sentences."""
    return [reported_finding(one) for row in rows for one in row.findings]


def reported_lines(ranks: Mapping[int, Rank]) -> list[str]:
    """The table and the findings for a terminal; nothing if nothing was reported."""
    rows = reported_rows(ranks)
    if not rows:
        return []
    lines = [TITLE, *aligned((HEAD, *reported_cells(rows)), _WORDS), *finding_lines(rows)]
    return [printable(line) for line in lines]


def brief_reported(rows: Sequence[ReportedRow]) -> str:
    """The medians in one line: `loss 2.31, lr 0.001`; and how many findings there are."""
    values = [f"{row.name} {figure(row.middle)}" for row in rows if row.step is not None]
    found = sum(len(row.findings) for row in rows)
    more = f" ({counted(found, 'finding')}: :report)" if found else ""
    return f"{TITLE}: {', '.join(values)}{more}" if values else ""


def rank_reported(rank: Rank) -> str:
    """The newest values of a rank: `reported at step 12: loss 2.31, lr 0.001`; "" if none."""
    by_step: dict[int, list[str]] = {}
    for one in rank.reported:
        if (latest := latest_value(one)) is not None:
            by_step.setdefault(latest.step, []).append(f"{one.name} {figure(latest.value)}")
    parts = (f"at step {step:,}: {', '.join(by_step[step])}" for step in sorted(by_step)[::-1])
    return printable(f"reported {'; '.join(parts)}") if by_step else ""


def reported_changes(before: Frame, after: Frame) -> list[str]:
    """What two recordings have under each name: the medians over ranks, at their newest steps."""
    first, second = ({row.name: row for row in reported_rows(one.ranks)} for one in (before, after))
    return [
        f"{name}: {_median_words(first.get(name))}, then {_median_words(second.get(name))}"
        for name in {**first, **second}
    ]


def _median_words(row: ReportedRow | None) -> str:
    if row is None:
        return "not reported"
    if row.step is None:
        return "no step in common"
    found = figure(row.middle) if row.middle is not None else _not_finite_words(row)
    return f"{found} at step {row.step:,}"


def changes_document(before: Frame, after: Frame) -> list[dict[str, Any]]:
    """The same for JSON."""
    first, second = ({row.name: row for row in reported_rows(one.ranks)} for one in (before, after))
    return [
        {"name": name, "before": _at(first.get(name)), "after": _at(second.get(name))}
        for name in {**first, **second}
    ]


def _at(row: ReportedRow | None) -> dict[str, Any] | None:
    return None if row is None else {"step": row.step, "median": row.middle}


def reported_document(ranks: Mapping[int, Rank]) -> list[dict[str, Any]]:
    """The rows as JSON, in which values that are not finite are texts."""
    return [
        {
            "name": row.name,
            "ranks": fold(row.ranks),
            "step": row.step,
            "min": row.finite[0][0] if row.finite else None,
            "median": row.middle,
            "max": row.finite[-1][0] if row.finite else None,
            "not_finite": {str(rank): repr(one) for rank, one in sorted(row.not_finite.items())},
            "equal": row.are_equal,
            "findings": [
                {"kind": one.kind, "ranks": fold(one.ranks), "step": one.step,
                 "text": reported_finding(one)}
                for one in row.findings
            ],
        }
        for row in reported_rows(ranks)
    ]  # fmt: skip

"""Checks of one recording against another, as text, as JSON, and as an exit status."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from frtop_tui.job.naming import printable
from frtop_tui.job.units import NOT_KNOWN, counted, percent_change, timing
from frtop_tui.statistics.regression import Check, Result, overall
from frtop_tui.text.document import aligned
from frtop_tui.text.exit_status import BROKEN, HEALTHY, UNDECIDED
from frtop_tui.text.statistics_table import line_field
from frtop_tui.text.statistics_words import place_words

HEAD: Final = ("check", "line", "op", "limit", "before", "after", "change", "samples", "result")
STATUS: Final[dict[Result, int]] = {"within": HEALTHY, "above": BROKEN, "undecided": UNDECIDED}
_ORDER: Final[tuple[Result, ...]] = ("above", "undecided", "within")
MOST_CHECKS: Final = 40
"""The most lines of text, checks above their limit first; JSON has all."""


def check_lines(checks: Sequence[Check]) -> list[str]:
    """Lines that are safe for a terminal; the last line is a summary."""
    found = sorted(checks, key=lambda one: _ORDER.index(one.result))
    table: list[Sequence[str]] = [HEAD]
    for one in found[:MOST_CHECKS]:
        kind, site = one.line[:2] if one.line is not None else (NOT_KNOWN, None)
        table.append((
            one.limit.figure, place_words(site), kind, one.limit.words, timing(one.before_ns),
            timing(one.after_ns), _change(one), _samples(one),
            one.result + (f": {one.why}" if one.why else ""),
        ))  # fmt: skip
    lines = aligned(table)
    if len(found) > MOST_CHECKS:
        lines.append(f"and {len(found) - MOST_CHECKS} more: --json has all")
    counts = [(sum(one.result == result for one in checks), result) for result in _ORDER]
    summary = ", ".join(f"{count} {_SUMS[result]}" for count, result in counts if count)
    return [printable(line) for line in (*lines, f"{counted(len(checks), 'check')}: {summary}")]


_SUMS: Final[dict[Result, str]] = {
    "above": "above the limit",
    "undecided": "undecided",
    "within": "within",
}


def _change(one: Check) -> str:
    if one.growth is None:
        return NOT_KNOWN
    low, high = one.growth
    if math.isinf(high):
        return "from 0"
    return f"{percent_change(low)} to {percent_change(high)}"


def _samples(one: Check) -> str:
    before, after = one.samples
    return f"{before}, {after}" if before or after else NOT_KNOWN


def check_document(checks: Sequence[Check]) -> dict[str, Any]:
    """The same as JSON; times in ns, shares of the first recording."""
    result = overall(checks)
    return {
        "result": result,
        "exit_status": STATUS[result],
        "checks": [
            {
                "figure": one.limit.figure,
                "limit_share": one.limit.share,
                "limit_ns": one.limit.ns,
                "line": line_field(one.line[1]) if one.line is not None else None,
                "kind": None if one.line is None else one.line[0],
                "before_ns": one.before_ns,
                "after_ns": one.after_ns,
                "growth": _finite(one.growth),
                "above_limit_ns": _finite(one.excess_ns),
                "samples_before": one.samples[0],
                "samples_after": one.samples[1],
                "result": one.result,
                "why": one.why,
            }
            for one in checks
        ],
    }  # fmt: skip


def _finite(interval: tuple[float, float] | None) -> list[float | None] | None:
    """None for infinity, which JSON lacks: growth from 0 has no share."""
    if interval is None:
        return None
    return [None if math.isinf(one) else one for one in interval]

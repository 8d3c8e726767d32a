"""What changed between two recordings of a job, as lines of text and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from frtop_tui.diagnosis.model import Frame
from frtop_tui.job.environment import UNSET, environment, excerpts
from frtop_tui.job.naming import printable
from frtop_tui.job.statistics import JobStatistics
from frtop_tui.job.units import NOT_KNOWN, byte_size, counted, duration, timing
from frtop_tui.statistics.comparison import Measured, StatisticsChange, compare
from frtop_tui.statistics.run_gauges import GaugeChange, gauge_changes, longest
from frtop_tui.text.document import aligned
from frtop_tui.text.health_words import health_words
from frtop_tui.text.reported_words import TITLE, changes_document, reported_changes
from frtop_tui.text.statistics_table import line_field
from frtop_tui.text.statistics_words import place_words

MOST_LINES: Final = 30
HEAD: Final = ("line", "op", "size", "before", "after", "noise", "what", "skew before", "after",
               "what")  # fmt: skip
NOTHING: Final = "nothing changed by more than the noise"
_TELLING: Final = ("new", "gone", "slower", "faster")


def comparison_lines(before: Frame, after: Frame) -> list[str]:
    """All lines are safe for a terminal. Both frames have statistics."""
    first, second = before.statistics, after.statistics
    if first is None or second is None:
        which = "first" if first is None else "second"
        return [f"the {which} recording has no ops: nothing can be compared"]
    if first.calls and not second.calls:
        settings = [f"  {one}" for one in settings_changes(before, after)]
        lines = [_nothing_issued(before, after), *(["", "settings", *settings] if settings else [])]
        return [printable(line) for line in lines]
    found = compare(first, second)
    lines = [*_steps(found, first, second)]
    changed = [line for line in found.lines if _is_telling(line.duration, line.skew)]
    table: list[Sequence[str]] = [HEAD]
    for line in changed[:MOST_LINES]:
        row = line.row
        size = byte_size(row.bytes / row.count if row.bytes else None)
        skew = (timing(line.skew.before_ns), timing(line.skew.after_ns))
        skew_change = line.skew.change if line.skew.ratio else NOT_KNOWN
        took = (*_cells(line.duration), line.duration.change)
        table.append((place_words(row.site), row.kind, size, *took, *skew, skew_change))
    if changed:
        lines += ["", f"lines that changed ({len(changed)} of {len(found.lines)})", *aligned(table)]
    gauges = [one for one in _gauge_changes(before, after) if one.is_telling]
    if gauges:
        lines += ["", "gauges", *map(_gauge_line, gauges)]
    if reported := reported_changes(before, after):
        lines += ["", TITLE, *(f"  {one}" for one in reported)]
    settings = settings_changes(before, after)
    if settings:
        lines += ["", "settings", *(f"  {one}" for one in settings)]
    if not changed and not settings and not gauges and not _is_telling(found.step):
        lines.append(NOTHING)
    return [printable(line) for line in lines]


def _nothing_issued(before: Frame, after: Frame) -> str:
    """The text for a second recording without ops."""
    words = "the second recording has no ops"
    if before.recorded is not None and after.recorded is not None:
        seconds = (after.recorded.wall_ns - before.recorded.wall_ns) / 1e9
        if seconds > 0:
            words = f"no op ended in the {duration(seconds)} between the two recordings"
    return f"{words}: nothing can be compared; the job is {health_words(after)}"


def _is_telling(*several: Measured) -> bool:
    return any(one.change in _TELLING for one in several)


def _cells(one: Measured) -> tuple[str, str, str]:
    noise = NOT_KNOWN if one.noise_ns is None else f"±{timing(one.noise_ns)}"
    return timing(one.before_ns), timing(one.after_ns), noise


def _steps(found: StatisticsChange, first: JobStatistics, second: JobStatistics) -> list[str]:
    before, after, noise = _cells(found.step)
    if found.step.before_ns is None and found.step.after_ns is None:
        return ["neither recording has steps"]
    lines = [f"step  {before}, then {after} ({noise}): {found.step.change}"]
    slower = [rank for rank, one in found.steps_by_rank.items() if one.change == "slower"]
    if slower and len(slower) < len(found.steps_by_rank):
        lines.append(f"  slower on {len(slower)} of {counted(len(found.steps_by_rank), 'rank')}")
    if len(first.ranks) != len(second.ranks):
        lines.append(f"  {counted(len(first.ranks), 'rank')}, then {len(second.ranks)}")
    return lines


def settings_changes(before: Frame, after: Frame) -> list[str]:
    """Versions and settings that all ranks share, where they changed."""
    first = environment(before.ranks.values()).common
    second = environment(after.ranks.values()).common
    return [
        f"{name}: " + ", then ".join(excerpts([first.get(name, UNSET), second.get(name, UNSET)]))
        for name in sorted(first.keys() | second.keys())
        if first.get(name) != second.get(name)
    ]


COMPARISON: Final = "frtop-diff-1"


def comparison_document(before: Frame, after: Frame) -> dict[str, Any]:
    """The same for JSON; times in ns."""
    first, second = before.statistics, after.statistics
    if first is None or second is None:
        return {
            "schema": COMPARISON,
            "lines": [],
            "step": None,
            "settings": settings_changes(before, after),
        }
    found = compare(first, second)
    return {
        "schema": COMPARISON,
        "step": _measured(found.step),
        "steps_by_rank": {str(rank): _measured(one) for rank, one in found.steps_by_rank.items()},
        "lines": [
            {
                "line": line_field(row.site),
                "kind": row.kind,
                "largest_bytes": row.size,
                "count_before": line.before.count if line.before is not None else 0,
                "count_after": line.after.count if line.after is not None else 0,
                "p50": _measured(line.duration),
                "skew": _measured(line.skew),
            }
            for line in found.lines
            for row in (line.row,)
        ],
        "gauges": {
            one.of.name: {"before": one.before, "after": one.after, "noise": one.noise}
            for one in _gauge_changes(before, after)
        },
        "reported": changes_document(before, after),
        "settings": settings_changes(before, after),
    }


def _gauge_changes(before: Frame, after: Frame) -> tuple[GaugeChange, ...]:
    """Means over each minute of a run; of captures and short runs, over the last ten minutes."""
    first, second = (
        [known for host in one.hosts if (known := longest(host)) is not None]
        for one in (before, after)
    )
    return gauge_changes(first, second)


def _gauge_line(one: GaugeChange) -> str:
    shown = one.of.shown
    before, after, noise = (shown(value or 0.0) for value in (one.before, one.after, one.noise))
    return f"  {one.of.words}: {before}, then {after} (±{noise})"


def _measured(one: Measured) -> dict[str, Any]:
    return {name: getattr(one, name) for name in ("before_ns", "after_ns", "noise_ns", "change")}

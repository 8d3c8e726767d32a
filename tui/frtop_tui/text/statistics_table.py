"""The statistics of a job as lines of text: calls by line, and where a step goes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from msgspec.structs import asdict

from frtop_probe import wire
from frtop_tui.diagnosis.model import Frame
from frtop_tui.diagnosis.words.stragglers import Stragglers
from frtop_tui.job.naming import job_title, printable
from frtop_tui.job.statistics import CallRow, JobStatistics
from frtop_tui.job.units import NOT_KNOWN, byte_rate, percent, percents, timing, timings
from frtop_tui.statistics.last_to_arrive import last_to_arrive
from frtop_tui.statistics.orders import SLOWEST, ordered, share_of_step
from frtop_tui.statistics.step_table import StepRow, has_bubbles, stage_rows, step_rows
from frtop_tui.text.document import aligned
from frtop_tui.text.reported_words import reported_lines
from frtop_tui.text.statistics_words import (
    clock_words,
    coverage_words,
    group_words,
    labels_of,
    op_size_words,
    place_words,
    ranks_words,
    window_words,
)

MOST_LINES: Final = 40
HEAD: Final = ("line", "op", "group", "size", "count", "p50", "p95", "max", "bus", "skew",
               "last to arrive", "of a step")  # fmt: skip
STEP_COLUMNS: Final = ("data", "forward", "backward", "communication", "bubble", "optimizer", "own",
                       "step")  # fmt: skip
_STEP_FIELDS: Final = {"own": "own_ns", "step": "took_ns"}


def statistics_lines(frame: Frame, order: str = SLOWEST) -> list[str]:
    """Lines that are safe for a terminal."""
    found = frame.statistics
    if found is None:
        return [NO_STATISTICS]
    rows = ordered(found.rows, order)
    lines = head_lines(frame, found, ranks_words(found), window_words(found), clock_words(found))
    if rows:
        table = (HEAD, *call_cells(frame, found, order, MOST_LINES))
        lines += ["", f"by line, sorted by {order}", *aligned(table)]
    else:
        lines += ["", NO_CALLS]
    if len(rows) > MOST_LINES:
        lines.append(f"and {len(rows) - MOST_LINES} more rows: --json has all")
    if steps := step_rows(found):
        lines += ["", f"where a step goes (medians of {steps[0].steps:,} steps)"]
        lines += aligned(step_table(found, steps))
        lines += [_pace(steps[0]), *step_words(found)]
    if reported := reported_lines(frame.ranks):
        lines += ["", *reported]
    return [printable(line) for line in lines]


def head_lines(frame: Frame, found: JobStatistics, *facts: str) -> list[str]:
    """The job with these facts, then what the figures lack."""
    title = job_title(frame.job) if frame.job is not None else "frtop"
    notes = (f"note  {one}" for one in coverage_words(frame, found))
    return [" · ".join(filter(None, (title, *facts))), *notes]


NO_STATISTICS: Final = "there are no statistics of these ranks"
NO_CALLS: Final = "frtop knows of no op in that time"
COMMUNICATION: Final = (
    "communication: at least the waits of the training thread, at most all time with an op pending;"
    " own: time with none pending. Both make up a step; data, forward, backward and optimizer show"
    " the same time by phase"
)

BUBBLE: Final = (
    "bubble: waits of the training thread for messages, in a pipeline for other stages; part of"
    " communication. A stage is a rank's place in the group of its messages"
)


def call_cells(
    frame: Frame, found: JobStatistics, order: str = SLOWEST, most: int | None = None
) -> list[Sequence[str]]:
    """The cells of calls, with `HEAD` as their titles; `SLOWEST` begins with stragglers."""
    labels, late = labels_of(frame.groups), Stragglers.of(frame.verdicts)
    table: list[Sequence[str]] = []
    rows = [(row, late.first(last_to_arrive([row]), [row])) for row in ordered(found.rows, order)]
    if order == SLOWEST:
        rows.sort(key=lambda one: one[1].rank not in late.blamed)
    for row, last in rows[:most]:
        share = share_of_step(row)
        table.append((
            place_words(row.site),
            row.kind or NOT_KNOWN,
            group_words(row, labels),
            op_size_words(row),
            f"{row.count:,}",
            timing(row.p50_ns),
            timing(row.p95_ns),
            timing(row.max_ns),
            byte_rate(row.bus_bandwidth),
            timing(row.skew_ns),
            late.words(last, [row]),
            NOT_KNOWN if share is None else percent(share),
        ))  # fmt: skip
    return table


def step_table(found: JobStatistics, rows: Sequence[StepRow]) -> list[tuple[str, ...]]:
    """The titles and cells of steps: medians, shares, stages, ranks that stand out."""
    columns = [one for one in STEP_COLUMNS if one != "bubble" or has_bubbles(found)]
    shares = ("of a step", *(_share_cell(rows[0], column) for column in columns))
    several = [("median", rows[0])]
    several += [(f"stage {row.stage}", row) for row in stage_rows(found)]
    several += [(f"rank {row.rank}", row) for row in rows[1:]]
    cells = [(name, *(step_cell(row, column) for column in columns)) for name, row in several]
    return [("", *columns), cells[0], shares, *cells[1:]]


def step_words(found: JobStatistics) -> list[str]:
    """What the columns mean."""
    return [COMMUNICATION, BUBBLE] if has_bubbles(found) else [COMMUNICATION]


def step_cell(row: StepRow, column: str) -> str:
    """A figure of the table of steps."""
    if column == "communication":
        return timings(row.blocked_ns, row.pending_ns)
    if column == "bubble" and row.bubble_ns is not None and row.stage is not None:
        return f"{timing(row.bubble_ns)} {bubble_share(row)}"
    return timing(_step_ns(row, column))


def bubble_share(row: StepRow) -> str:
    """`33 %`: the share of a step in which its ranks wait for messages; `-` if not recorded."""
    if row.bubble_ns is None or not row.took_ns:
        return NOT_KNOWN
    return percent(row.bubble_ns / row.took_ns)


def _share_cell(row: StepRow, column: str) -> str:
    """The same as a share of the step."""
    took, ns = row.took_ns, _step_ns(row, column)
    if column == "step":
        return ""
    if column == "communication" and took:
        return percents(row.blocked_ns / took, row.pending_ns / took)
    return NOT_KNOWN if ns is None or not took else percent(ns / took)


def _step_ns(row: StepRow, column: str) -> int | None:
    found: int | None = getattr(row, _STEP_FIELDS.get(column, f"{column}_ns"), None)
    return found


def _pace(job: StepRow) -> str:
    samples = "" if job.samples_per_s is None else f", {job.samples_per_s:,.0f} samples/s"
    longest = f"p95 {timing(job.p95_ns)}, the longest {timing(job.max_ns)}"
    return f"{job.steps_per_s:.2f} steps/s{samples}; steps: {longest}"


_FIGURES: Final = (
    *("count", "bytes", "timed", "late", "pending", "p50_ns", "p95_ns", "max_ns", "total_ns"),
    *("waited_ns", "sampled", "skew_ns", "transfer_ns", "algorithm_bandwidth", "bus_bandwidth"),
)


def call_figures(row: CallRow) -> dict[str, float | None]:
    """A row of calls for programs; times in ns, bandwidths in bytes per second."""
    return {
        "per_second": row.rate,
        "largest_bytes": row.size,
        "share_of_step": share_of_step(row),
        **{name: getattr(row, name) for name in _FIGURES},
    }


def line_field(site: wire.Site | None) -> str | None:
    """A line of the program for programs: its whole path."""
    return None if site is None else f"{site.file}:{site.line}"


def statistics_document(found: JobStatistics, order: str = SLOWEST) -> dict[str, Any]:
    """The table as JSON; times in ns, bandwidths in bytes per second."""
    rows = [
        {
            "kind": row.kind,
            "line": line_field(row.site),
            "function": None if row.site is None else row.site.function,
            "groups": [{"name": key.name, "ranks": key.ranks} for key in row.groups],
            "ranks": list(row.ranks),
            "p2p": row.p2p,
            "on_device": row.on_device,
            **call_figures(row),
            "last": [{"rank": rank, "times": times} for rank, times in row.last],
        }
        for row in ordered(found.calls, order)
    ]
    return {
        "schema": "frtop-statistics-1",
        "seconds": found.seconds,
        "counted_seconds": max(0.0, (found.until_ns - found.from_ns) / 1e9),
        "ranks": list(found.ranks),
        "missing": list(found.missing),
        "clock_error_ns": found.clock_error_ns,
        "lost": found.lost,
        "notes": list(found.notes),
        "calls": rows,
        "steps": [asdict(row) for row in step_rows(found)],
        "stages": [asdict(row) for row in stage_rows(found)],
    }

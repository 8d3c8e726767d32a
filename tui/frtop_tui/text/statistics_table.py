"""The statistics of a job as lines of text: calls by line, and where a step goes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from frtop_tui.diagnosis.model import Frame
from frtop_tui.job.naming import job_title, printable
from frtop_tui.job.statistics import JobStatistics
from frtop_tui.job.units import NOT_KNOWN, byte_rate, percent, timing
from frtop_tui.statistics.last_to_come import last_to_come
from frtop_tui.statistics.orders import SLOWEST, ordered, share_of_step
from frtop_tui.statistics.step_table import StepRow, step_rows
from frtop_tui.text.statistics_words import (
    clock_words,
    coverage_words,
    group_words,
    labels_of,
    line_words,
    op_size_words,
    ranks_words,
    window_words,
)

MOST_LINES: Final = 40
HEAD: Final = ("line", "op", "group", "size", "count", "p50", "p95", "max", "bus", "skew",
               "last to come", "of a step")  # fmt: skip
STEP_HEAD: Final = ("", "data", "forward", "backward", "communication", "optimizer", "own", "step")
LEFT: Final = frozenset(
    {"line", "kinds", "op", "group", "last to come", "check", "limit", "result", ""}
)
"""Columns of words; the others are figures, whose ends are aligned."""


def statistics_lines(frame: Frame, order: str = SLOWEST, most: int = MOST_LINES) -> list[str]:
    """All lines are safe for a terminal.

    Args:
        frame: with statistics.
        order: of the rows, see `ordered`.
        most: rows of calls.
    """
    found = frame.statistics
    if found is None:
        return ["nothing is known of what the ranks did"]
    title = job_title(frame.job) if frame.job is not None else "frtop"
    facts = (title, ranks_words(found), window_words(found), clock_words(found))
    rows = ordered(found.rows, order)
    lines = [" · ".join(filter(None, facts)), *(f"note  {one}" for one in coverage_words(found))]
    if rows:
        table = (HEAD, *call_cells(frame, found, order, most))
        lines += ["", f"by line, sorted by {order}", *aligned(table)]
    else:
        lines += ["", NO_CALLS]
    if len(rows) > most:
        lines.append(f"and {len(rows) - most} more rows: --json has all")
    if steps := step_rows(found):
        lines += ["", f"where a step goes (medians of {steps[0].steps:,} steps)"]
        lines += aligned((STEP_HEAD, *step_cells(steps)))
        lines += [_pace(steps[0]), COMMUNICATION]
    return [printable(line) for line in lines]


NO_CALLS: Final = "no op was issued in that time, or none is known"
COMMUNICATION: Final = (
    "communication: at least what kept the thread that steps, at most while any op was pending;"
    " own: while none was"
)


def call_cells(
    frame: Frame, found: JobStatistics, order: str = SLOWEST, most: int | None = None
) -> list[Sequence[str]]:
    """The cells of the first rows of calls, as `HEAD` names them."""
    labels = labels_of(frame.groups)
    table: list[Sequence[str]] = []
    for row in ordered(found.rows, order)[:most]:
        share = share_of_step(row)
        table.append((
            line_words(row),
            row.kind or NOT_KNOWN,
            group_words(row, labels),
            op_size_words(row),
            f"{row.count:,}",
            timing(row.p50_ns),
            timing(row.p95_ns),
            timing(row.max_ns),
            byte_rate(row.bus_bandwidth),
            timing(row.skew_ns),
            last_to_come([row]).words,
            NOT_KNOWN if share is None else percent(share),
        ))  # fmt: skip
    return table


def aligned(table: Sequence[Sequence[str]]) -> list[str]:
    """The cells of a table, the first line of which are its heads, as lines."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    left = [head in LEFT for head in table[0]]
    return [
        "  ".join(
            cell.ljust(width) if words else cell.rjust(width)
            for cell, width, words in zip(cells, widths, left, strict=True)
        ).rstrip()
        for cells in table
    ]


def step_cells(rows: Sequence[StepRow]) -> list[tuple[str, ...]]:
    """The cells of the table of steps, as `STEP_HEAD` names them."""
    cells = [_step_cells(row) for row in rows]
    return [cells[0], _share_cells(rows[0]), *cells[1:]] if rows else []


def _step_cells(row: StepRow) -> tuple[str, ...]:
    low, high = timing(row.blocked_ns), timing(row.pending_ns)
    return (
        "median" if row.rank is None else f"rank {row.rank}",
        timing(row.data_ns),
        timing(row.forward_ns),
        timing(row.backward_ns),
        high if low == high else f"{low} to {high}",
        timing(row.optimizer_ns),
        timing(row.own_ns),
        timing(row.took_ns),
    )


def _share_cells(row: StepRow) -> tuple[str, ...]:
    """The same as shares of the step."""

    def share(ns: int | None) -> str:
        return NOT_KNOWN if ns is None or not row.took_ns else percent(ns / row.took_ns)

    low, high = share(row.blocked_ns), share(row.pending_ns)
    return (
        "of a step",
        share(row.data_ns),
        share(row.forward_ns),
        share(row.backward_ns),
        high if low == high else f"{low} to {high}",
        share(row.optimizer_ns),
        share(row.own_ns),
        "",
    )


def _pace(job: StepRow) -> str:
    samples = "" if job.samples_per_s is None else f", {job.samples_per_s:,.0f} samples/s"
    longest = f"p95 {timing(job.p95_ns)}, the longest {timing(job.max_ns)}"
    return f"{job.steps_per_s:.2f} steps/s{samples}; steps: {longest}"


def statistics_document(found: JobStatistics, order: str = SLOWEST) -> dict[str, Any]:
    """The same as values of JSON; times in ns, bandwidths in bytes a second."""
    rows = [
        {
            "kind": row.kind,
            "line": None if row.site is None else f"{row.site.file}:{row.site.line}",
            "function": None if row.site is None else row.site.function,
            "groups": [{"name": key.name, "ranks": key.ranks} for key in row.groups],
            "ranks": list(row.ranks),
            "p2p": row.p2p,
            "on_device": row.on_device,
            "count": row.count,
            "per_second": row.rate,
            "bytes": row.bytes,
            "largest_bytes": row.size,
            "timed": row.timed,
            "late": row.late,
            "pending": row.pending,
            "p50_ns": row.p50_ns,
            "p95_ns": row.p95_ns,
            "max_ns": row.max_ns,
            "total_ns": row.total_ns,
            "waited_ns": row.waited_ns,
            "share_of_step": share_of_step(row),
            "sampled": row.sampled,
            "skew_ns": row.skew_ns,
            "transfer_ns": row.transfer_ns,
            "algorithm_bandwidth": row.algorithm_bandwidth,
            "bus_bandwidth": row.bus_bandwidth,
            "last": [{"rank": rank, "times": times} for rank, times in row.last],
        }
        for row in ordered(found.calls, order)
    ]
    steps = [{name: getattr(row, name) for name in StepRow.__struct_fields__} for row in
             step_rows(found)]  # fmt: skip
    return {
        "seconds": found.seconds,
        "counted_seconds": max(0.0, (found.until_ns - found.from_ns) / 1e9),
        "ranks": list(found.ranks),
        "missing": list(found.missing),
        "clock_error_ns": found.clock_error_ns,
        "lost": found.lost,
        "notes": list(found.notes),
        "calls": rows,
        "steps": steps,
    }

"""Ops by line, group and size as CSV: one row per row of the statistics."""

from __future__ import annotations

from typing import Final

from frtop_tui.diagnosis.model import Frame
from frtop_tui.files.formats.op_table import csv_file
from frtop_tui.job.naming import GroupKey, printable
from frtop_tui.job.statistics import CallRow
from frtop_tui.statistics.orders import ordered, share_of_step
from frtop_tui.text.statistics_words import group_words, labels_of

COLUMNS: Final = {
    "file": "of the line that issued the ops",
    "line": "",
    "function": "",
    "kind": "",
    "group": "name or description; `:*` for several that are alike",
    "group_ranks": "members of each, folded, separated by `;`",
    "p2p": "1: sends or receives",
    "on_device": "1",
    "largest_bytes": "upper bound of the bytes of an op, a power of two; 0: no data, or not known",
    "ranks": "how many issued them",
    "count": "",
    "per_second": "of all ranks together",
    "bytes": "of all ops together, each by nccl-tests' convention",
    "timed": "ops whose end is exact; durations are of these",
    "late": "ops whose end is an upper bound",
    "pending": "",
    "p50_ns": "of the duration from issue to end, within 4.5 %",
    "p95_ns": "likewise",
    "max_ns": "exact",
    "total_ns": "sum of the durations of timed ops",
    "share_of_step": "how much of its ranks' time the ops were pending, at most",
    "sampled": "collectives whose issue is known of all members",
    "skew_ns": "median time from their first to their last issue",
    "transfer_ns": "median time from their last issue to their last end",
    "algorithm_bandwidth": "bytes a second, as nccl-tests defines it",
    "bus_bandwidth": "likewise",
    "last_rank": "who came last most often; empty: not known",
    "last_times": "to how many of the sampled ops",
}
"""The columns in their order, and what they mean."""


def call_table(frame: Frame) -> bytes:
    """The whole file; without statistics only its head."""
    labels = labels_of(frame.groups)
    rows = ordered(frame.statistics.calls) if frame.statistics is not None else ()
    return csv_file(COLUMNS, (_cells(row, labels) for row in rows))


def _cells(row: CallRow, labels: dict[GroupKey, str]) -> tuple[object, ...]:
    site, share = row.site, share_of_step(row)
    last_rank, last_times = row.last[0] if row.last else ("", "")
    return (
        printable(site.file) if site is not None else "",
        site.line if site is not None else "",
        printable(site.function) if site is not None else "",
        row.kind,
        group_words(row, labels),
        ";".join(key.ranks for key in row.groups),
        int(row.p2p),
        int(row.on_device),
        row.size,
        len(row.ranks),
        row.count,
        f"{row.rate:.3f}",
        row.bytes,
        row.timed,
        row.late,
        row.pending,
        _known(row.p50_ns),
        _known(row.p95_ns),
        _known(row.max_ns),
        row.total_ns,
        "" if share is None else f"{share:.4f}",
        row.sampled,
        _known(row.skew_ns),
        _known(row.transfer_ns),
        _known(row.algorithm_bandwidth),
        _known(row.bus_bandwidth),
        last_rank,
        last_times,
    )


def _known(value: float | None) -> object:
    return "" if value is None else round(value)

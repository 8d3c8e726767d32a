"""Ops by line, group and size as CSV: one row per row of the statistics."""

from __future__ import annotations

from typing import Final

from frtop_probe import wire
from frtop_tui.diagnosis.model import Frame
from frtop_tui.files.formats.op_table import csv_of
from frtop_tui.job.naming import GroupKey
from frtop_tui.job.statistics import CallRow
from frtop_tui.statistics.orders import ordered
from frtop_tui.text.statistics_table import call_figures
from frtop_tui.text.statistics_words import group_words, labels_of

COLUMNS: Final = {
    "file": "of the line that issued the ops",
    "line": "",
    "function": "",
    "kind": "",
    "group": "name or description; `:*` for several that are alike",
    "group_ranks": "the members of each group, folded, separated by `;`",
    "p2p": "1: sends or receives",
    "on_device": "1",
    "largest_bytes": "upper bound of an op's bytes, a power of two; 0: no data, or unknown",
    "ranks": "how many ranks issued them",
    "count": "",
    "per_second": "all ranks together",
    "bytes": "all ops together, each by nccl-tests' convention",
    "timed": "ops whose end is exact; durations are those of these ops",
    "late": "ops whose end is an upper bound",
    "pending": "",
    "p50_ns": "of the duration from issue to end, within 4.5 %",
    "p95_ns": "likewise",
    "max_ns": "exact",
    "total_ns": "sum of the durations of timed ops",
    "waited_ns": "total time that ranks waited for the last one to arrive",
    "share_of_step": "at most this share of its ranks' time the ops were pending",
    "sampled": "collectives whose issue time is known for all members",
    "skew_ns": "median time from their first to their last issue",
    "transfer_ns": "median time from their last issue to their last end",
    "algorithm_bandwidth": "bytes per second, as nccl-tests defines it",
    "bus_bandwidth": "likewise",
    "last_rank": "the rank that arrived last most often; empty: unknown",
    "last_times": "at how many of the sampled ops",
}
"""The columns in order, and what they mean."""


def call_table(frame: Frame) -> bytes:
    """The file; without statistics only its head."""
    labels = labels_of(frame.groups)
    calls = frame.statistics.calls if frame.statistics is not None else ()
    return csv_of(COLUMNS, (_cells(row, labels) for row in ordered(calls)))


def _cells(row: CallRow, labels: dict[GroupKey, str]) -> list[object]:
    site = row.site or wire.Site("", 0, "")
    last_rank, last_times = row.last[0] if row.last else ("", "")
    known = {
        "file": site.file,
        "line": site.line or "",
        "function": site.function,
        "kind": row.kind,
        "group": group_words(row, labels),
        "group_ranks": ";".join(key.ranks for key in row.groups),
        "p2p": int(row.p2p),
        "on_device": int(row.on_device),
        "ranks": len(row.ranks),
        "last_rank": last_rank,
        "last_times": last_times,
        **{name: _figure(name, value) for name, value in call_figures(row).items()},
    }
    return [known[name] for name in COLUMNS]


def _figure(name: str, value: float | None) -> object:
    if value is None:
        return ""
    return round(value, 4) if name in ("per_second", "share_of_step") else round(value)

"""The statistics of the last minute as families of `prometheus_client`; their number is bounded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from prometheus_client.core import GaugeMetricFamily

from frtop_tui.diagnosis.model import Frame
from frtop_tui.job.statistics import CallRow, JobStatistics
from frtop_tui.statistics.orders import ordered
from frtop_tui.statistics.step_table import StepRow, step_rows
from frtop_tui.text.job_counts import label
from frtop_tui.text.statistics_words import group_words, labels_of

MOST_ROWS: Final = 32
"""Kinds, groups and sizes with series: those whose ops took most time. Lines have none: paths are
not in the metrics, and a program may have any number."""
_CALL: Final = ("op", "group", "bytes")


def statistics_families(frame: Frame) -> Iterator[Any]:
    """Of the last minute; nothing while agents have not answered."""
    found = frame.statistics
    if found is None:
        return
    yield GaugeMetricFamily("frtop_window_seconds",
                            "Of which time the figures of steps and ops are.",
                            found.seconds)  # fmt: skip
    yield from _of_steps(found)
    yield from _of_calls(frame, found)


def _of_steps(found: JobStatistics) -> Iterator[Any]:
    rows = step_rows(found)
    if not rows:
        return
    job, *slowest = rows
    parts = GaugeMetricFamily("frtop_step_part_seconds",
                              "Median of what is in a step, over the steps of all ranks.",
                              labels=("part",))  # fmt: skip
    for name, value in _parts(job):
        if value is not None:
            parts.add_metric((name,), value / 1e9)
    yield parts
    if job.samples_per_s is not None:
        yield GaugeMetricFamily("frtop_samples_per_second", "As the job says them.",
                                job.samples_per_s)  # fmt: skip
    own = GaugeMetricFamily("frtop_rank_own_seconds",
                            "Median time of a step in which no op was pending, of the ranks with"
                            " the most of it.", labels=("rank",))  # fmt: skip
    for row in slowest:
        own.add_metric((str(row.rank),), row.own_ns / 1e9)
    yield own


def _parts(job: StepRow) -> Iterator[tuple[str, int | None]]:
    yield from (
        ("all", job.took_ns),
        ("own", job.own_ns),
        ("communication_least", job.blocked_ns),
        ("communication_most", job.pending_ns),
        ("data", job.data_ns),
        ("forward", job.forward_ns),
        ("backward", job.backward_ns),
        ("optimizer", job.optimizer_ns),
    )


def _of_calls(frame: Frame, found: JobStatistics) -> Iterator[Any]:
    labels = labels_of(frame.groups)
    rows: dict[tuple[str, str, str], CallRow] = {}
    for row in ordered(found.calls):  # of several lines that look alike the one with most time
        key = (label(row.kind), label(group_words(row, labels)), str(row.size))
        if len(rows) < MOST_ROWS:
            rows.setdefault(key, row)
    took = GaugeMetricFamily("frtop_op_seconds", "Duration of ops from issue to end.",
                             labels=(*_CALL, "quantile"))  # fmt: skip
    skew = GaugeMetricFamily("frtop_op_skew_seconds",
                             "Median time from the first to the last rank to come.",
                             labels=_CALL)  # fmt: skip
    bus = GaugeMetricFamily("frtop_op_bus_bytes_per_second", "Bus bandwidth, as nccl-tests has it.",
                            labels=_CALL)  # fmt: skip
    for key, row in rows.items():
        for name, value in (("0.5", row.p50_ns), ("0.95", row.p95_ns), ("1", row.max_ns)):
            if value is not None:
                took.add_metric((*key, name), value / 1e9)
        if row.skew_ns is not None:
            skew.add_metric(key, row.skew_ns / 1e9)
        if row.bus_bandwidth is not None:
            bus.add_metric(key, row.bus_bandwidth)
    yield from (took, skew, bus)

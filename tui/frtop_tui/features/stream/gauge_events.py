"""Gauges of hosts, skew of groups and parts of steps, as events of `frtop stream`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from frtop_probe.ring.rank_ranges import fold
from frtop_tui.diagnosis.model import Frame
from frtop_tui.features.stream.events import GaugesRead, SkewSeen, StepParts, StreamEvent
from frtop_tui.job.host_gauges import HostGauges
from frtop_tui.job.model import HostView
from frtop_tui.job.statistics import JobStatistics
from frtop_tui.job.unix_times import Timeline
from frtop_tui.statistics.group_skew import group_skews
from frtop_tui.statistics.step_table import StepRow, step_rows


class GaugeEvents:
    """Yields the newest figures of each frame, at most once in an interval."""

    def __init__(self, timeline: Timeline, every_s: float) -> None:
        self._timeline = timeline
        self._every_ns = round(every_s * 1e9)
        self._hosts: dict[str, int] = {}
        """When the figures that were written last were read, by the host's clock."""
        self._statistics: JobStatistics | None = None

    def of(self, frame: Frame) -> Iterator[StreamEvent]:
        """The figures that are due; those of hosts that do not report are old, and left out."""
        for host in frame.hosts:
            if host.state != "reporting" or host.gauges is None:
                continue
            last = self._hosts.get(host.name)
            # An agent that has started again may be on a machine that has, too.
            if last is None or not 0 <= host.gauges.at_ns - last < self._every_ns:
                self._hosts[host.name] = host.gauges.at_ns
                yield from self._of_host(frame, host, host.gauges)
        self._hosts = {one.name: self._hosts[one.name] for one in frame.hosts
                       if one.name in self._hosts}  # fmt: skip
        found, last_found = frame.statistics, self._statistics
        if found is None or (
            last_found is not None and found.until_ns - last_found.until_ns < self._every_ns
        ):
            return
        self._statistics = found
        yield from self._of_statistics(frame, found)

    def recorded(self, frame: Frame) -> Iterator[StreamEvent]:
        """The readings that a file has of each host, oldest first; then the rest as of its end."""
        for host in frame.hosts:
            last = None
            for gauges in _readings(host):
                if last is None or gauges.at_ns - last >= self._every_ns:
                    last = gauges.at_ns
                    yield from self._of_host(frame, host, gauges)
        if frame.statistics is not None:
            yield from self._of_statistics(frame, frame.statistics)

    def _of_host(self, frame: Frame, host: HostView, gauges: HostGauges) -> Iterator[StreamEvent]:
        ranks = {view.key: rank for rank, view in frame.ranks.items() if view.host == host.name}
        read_s = self._timeline.unix_s(gauges.at_ns + host.monotonic_ns)
        for one in gauges.subjects:
            users = sorted(ranks[key] for key in one.keys if key in ranks)
            if one.values and (users or not one.keys):  # else: of another job
                yield GaugesRead(
                    at_s=self._timeline.unix_s(frame.now_ns),
                    host=host.name,
                    read_s=read_s,
                    kind=one.kind,
                    # An agent numbers ranks by itself.
                    name="" if one.kind == "rank" else one.name,
                    ranks=fold(users),
                    values=dict(one.values),
                )

    def _of_statistics(self, frame: Frame, found: JobStatistics) -> Iterator[StreamEvent]:
        at_s = self._timeline.unix_s(frame.now_ns)
        for one in group_skews(found):
            yield SkewSeen(
                at_s=at_s,
                group=one.group.name,
                group_ranks=one.group.ranks,
                sampled=one.sampled,
                median_s=_seconds(one.median_ns),
                max_s=_seconds(one.max_ns),
                error_s=_seconds(one.error_ns),
                last_rank=one.last[0],
                last_count=one.last[1],
            )
        for row in step_rows(found):
            yield StepParts(at_s=at_s, rank=row.rank, steps=row.steps, **_parts(row))


def _readings(host: HostView) -> Iterable[HostGauges]:
    """Means of minutes as far as nothing better is known, then single readings, then the newest."""
    gauges, minutes = host.gauges, host.minutes
    if gauges is None:
        return
    times = gauges.past_times()
    first = times[0] if times else gauges.at_ns
    if minutes is not None:
        ends = minutes.past_times()
        yield from (minutes.as_of(n) for n in range(len(ends)) if ends[n] < first)
    yield from (gauges.as_of(n) for n in range(len(times)) if times[n] < gauges.at_ns)
    yield gauges


def _parts(row: StepRow) -> dict[str, Any]:
    return {
        "all_s": _seconds(row.took_ns),
        "own_s": _seconds(row.own_ns),
        "communication_least_s": _seconds(row.blocked_ns),
        "communication_most_s": _seconds(row.pending_ns),
        "data_s": _seconds(row.data_ns),
        "forward_s": _seconds(row.forward_ns),
        "backward_s": _seconds(row.backward_ns),
        "optimizer_s": _seconds(row.optimizer_ns),
    }


def _seconds(ns: int | None) -> Any:
    return None if ns is None else round(ns / 1e9, 6)

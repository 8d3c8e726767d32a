"""One rank's answer with what merging needs: its clock, its groups, its lines."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from frtop_probe import wire
from frtop_probe.history_columns import unpack_column
from frtop_tui.job.model import HostView, Rank
from frtop_tui.job.statistics import StepSplit


class RankAnswer(NamedTuple):
    """An agent's answer about one rank; its times plus `clock_ns` are on the operator's clock."""

    rank: int
    host: str
    clock_ns: int
    groups: Mapping[int, wire.Group]
    statistics: wire.RankStatistics
    sites: tuple[wire.Site, ...]
    issuers: Sequence[wire.Issuer] = ()

    def site(self, place: int) -> wire.Site | None:
        return self.sites[place - 1] if 0 < place <= len(self.sites) else None

    def steps(self) -> list[StepSplit]:
        """Its steps on the operator's clock; none if the columns do not fit together."""
        found = self.statistics.steps
        if found is None:
            return []
        try:
            columns = [unpack_column(getattr(found, name), found.count) for name in _STEP_FIELDS]
        except ValueError:
            return []
        # Only forwards of DDP and FSDP2 are recorded.
        forwards = found.phases and any(columns[_STEP_FIELDS.index("forward_ns")])
        return [
            StepSplit(
                number, end + self.clock_ns, took,
                data if found.fetches else None,
                blocked, pending,
                forward if forwards else None,
                backward if found.phases else None,
                optimizer if found.phases or optimizer else None,
                samples or None,
                bubble if found.bubbles else None,
            )
            for number, end, took, data, blocked, pending, forward, backward, optimizer, samples,
                bubble in zip(*columns, strict=True)
        ]  # fmt: skip


_STEP_FIELDS = ("number", "end_ns", "took_ns", "data_ns", "blocked_ns", "pending_ns", "forward_ns",
                "backward_ns", "optimizer_ns", "samples", "bubble_ns")  # fmt: skip


def answers_of(
    views: Mapping[int, Rank], response: wire.StatisticsResponse
) -> list[tuple[Rank, RankAnswer]]:
    """The answers of one host about known ranks."""
    return [
        (
            view,
            RankAnswer(
                view.rank,
                view.host,
                view.clock_ns,
                view.groups,
                one,
                response.sites,
                response.issuers,
            ),
        )
        for one in response.ranks
        if (view := views.get(one.key)) is not None
    ]


def clock_error(hosts: Collection[int | None]) -> int | None:
    """The largest error between times of two of these hosts, from each one's error; None: unknown.

    For one host it is 0: its ranks read one clock.
    """
    if len(hosts) < 2:
        return 0
    errors = sorted((one for one in hosts if one is not None), reverse=True)
    return sum(errors[:2]) if len(errors) == len(hosts) else None


def errors_of(hosts: Sequence[HostView]) -> dict[str, int | None]:
    """The error of each host's clock relative to ours."""
    return {host.name: host.clock_error_ns for host in hosts}

"""Times of all hosts as Unix time on one clock: that of the host where frtop runs."""

from __future__ import annotations

from frtop_tui.job.model import BaseFrame, Rank


class Timeline:
    """Fixed at the first frame: setting the clock while we run moves no event."""

    def __init__(self) -> None:
        self._wall_ns: int | None = None
        """Unix time minus the operator's monotonic clock."""

    def begin(self, frame: BaseFrame) -> None:
        """Takes the pair of clocks of the first frame; those of later ones are ignored."""
        if self._wall_ns is None:
            self._wall_ns = frame.wall_ns - frame.now_ns

    def unix_s(self, at_ns: int) -> float:
        """Unix time of the operator's monotonic `at_ns`, to a microsecond."""
        return round((at_ns + (self._wall_ns or 0)) / 1e9, 6)

    def of_rank(self, view: Rank, host_ns: int) -> float:
        """Unix time of `host_ns` on the monotonic clock of the rank's host."""
        return self.unix_s(host_ns + view.clock_ns)


def clock_errors(frame: BaseFrame) -> dict[str, float | None]:
    """By host, how far its times may be off, in seconds."""
    return {
        host.name: None if host.clock_error_ns is None else round(host.clock_error_ns / 1e9, 6)
        for host in frame.hosts
    }

"""The interface between screens and the sources of their frames."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from frtop_probe import wire
from frtop_tui.connect.followers import Order
from frtop_tui.diagnosis.model import Frame
from frtop_tui.job.naming import JobKey
from frtop_tui.statistics.wanted import StatisticsWanted

Asked = wire.RankRequest | wire.SnapshotRequest | Order
"""What a person, a verb or a watcher can ask of ranks."""


class Source:
    """Gives the newest frame and takes commands, which here do nothing. Never blocks its caller.

    Later frames show what becomes of a command, also when it cannot be carried out (there
    is no live job, our key has no right): nothing is raised.
    """

    def frame(self) -> Frame:
        """The newest frame; the same object as before when nothing changed."""
        raise NotImplementedError

    def watch(self, ranks: Iterable[int]) -> None:
        """Keeps the ops, process and stacks of these ranks fresh, of no others."""

    def show_hosts(self, hosts: Iterable[str]) -> None:
        """Keeps the last ten minutes of these hosts' gauges fresh: `HostView.gauges`."""

    def do(self, request: Asked, ranks: Iterable[int] = ()) -> None:
        """Asks these ranks, unless they are being asked that already. The only way to ask.

        Answers are in frames, or in the `news` of the feature that takes them. An order names its
        ranks itself.
        """

    def news(self) -> Mapping[str, Any]:
        """What came of orders, by feature; the same object as before when nothing changed."""
        raise NotImplementedError

    def capture(
        self, path: Path, *, automatic: bool = False, settle_s: float = 0.0, redact: bool = False
    ) -> None:
        """Writes everything that can be known now into one file: `Frame.writings`.

        Waits up to `settle_s` seconds for a verdict that is settled. With `redact`, names and
        data are replaced in it.
        """

    def finish_capture(self) -> None:
        """Writes what a capture has collected by now, and names the rest missing."""

    def export(self, path: Path, name: str, *, over: bool = False, redact: bool = False) -> None:
        """Writes the same in a format of other programs or people: `Frame.writings`."""

    def choose(self, job: JobKey | None) -> None:
        """Shows this job from now on; None: the newest."""

    def want_statistics(self, wanted: StatisticsWanted | None, *, whom: str = "") -> None:
        """Keeps `Frame.statistics` fresh for `whom`; None: they want nothing more.

        If several want some, they get what serves all of them.
        """

    def explain(self, *, on: bool) -> None:
        """Whether frames carry the wait-for graph, `Frame.trace`: it costs time."""

    def close(self) -> None:
        """Ends threads and sockets."""

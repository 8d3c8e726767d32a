"""What screens, verbs and watchers call: for the newest frame, and to ask ranks for something."""

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
"""What a person, a verb or a watcher can request from ranks."""


class Source:
    """Gives the newest frame and takes commands, which do nothing here.

    Never blocks its caller. Later frames show the outcome of a command, even if it is impossible
    (there is no live job, our key lacks the right): nothing is raised.
    """

    def frame(self) -> Frame:
        """The newest frame; the same object as before if nothing changed."""
        raise NotImplementedError

    def watch(self, ranks: Iterable[int]) -> None:
        """Keeps the ops, process and stacks of these ranks fresh, of no others."""

    def show_hosts(self, hosts: Iterable[str]) -> None:
        """Keeps the last ten minutes of these hosts' gauges fresh: `HostView.gauges`."""

    def do(self, request: Asked, ranks: Iterable[int] = ()) -> None:
        """Sends a request to these ranks, unless the same one is under way.

        The only way to do so. Answers appear in frames, or in the `news` of the feature that takes
        them. An order names its ranks itself.
        """

    def news(self) -> Mapping[str, Any]:
        """The results of orders, by feature; the same object as before if nothing changed."""
        raise NotImplementedError

    def capture(
        self, path: Path, *, automatic: bool = False, settle_s: float = 0.0, redact: bool = False
    ) -> None:
        """Writes everything that can be known now into one file: `Frame.writings`.

        Waits up to `settle_s` seconds for a settled verdict. With `redact`, replaces names and
        data.
        """

    def finish_capture(self) -> None:
        """Writes what a capture has collected so far, and lists what is missing."""

    def export(self, path: Path, name: str, *, over: bool = False, redact: bool = False) -> None:
        """Writes the same in a format for other programs or people: `Frame.writings`."""

    def choose(self, job: JobKey | None) -> None:
        """Shows this job from now on; None: the newest."""

    def want_statistics(self, wanted: StatisticsWanted | None, *, whom: str = "") -> None:
        """Keeps `Frame.statistics` fresh for `whom`; None: they no longer want any.

        If several want statistics, they get what serves all of them.
        """

    def explain(self, *, on: bool) -> None:
        """Whether frames carry the wait-for graph, `Frame.trace`: it costs time."""

    def close(self) -> None:
        """Ends threads and sockets."""

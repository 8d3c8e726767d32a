"""Orders ranks to change what they record, and waits for their answers."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

from frtop_tui.cli.output import show_progress
from frtop_tui.connect.source import Source
from frtop_tui.diagnosis.model import Frame
from frtop_tui.features.tensor_checks.orders import JobNumbers, RecordOrder
from frtop_tui.job.naming import folded, job_key
from frtop_tui.job.rank_sides import sides_of

ANSWER_S: Final = 10.0


class RankOrders:
    """Sends one order after the other through one source."""

    def __init__(self, source: Source, frame: Frame) -> None:
        """For the job of `frame` only: a newer one may appear before the user says yes."""
        self._source = source
        self._sent = 0
        if frame.job is not None:
            source.choose(job_key(frame.job))

    def send(self, order: RecordOrder, wait_s: float = ANSWER_S) -> JobNumbers:
        """What ranks record, once all have answered or the time is up."""
        self._sent += 1
        self._source.do(order)
        return self.wait(wait_s)

    def wait(self, wait_s: float = ANSWER_S) -> JobNumbers:
        """The same for orders already sent."""
        end = time.monotonic() + wait_s
        while True:
            found: JobNumbers = self._source.news()["tensor_checks"]
            due = [rank for rank, one in found.controls.items() if one.due]
            if (found.orders >= self._sent and not due) or time.monotonic() > end:
                return found
            show_progress(f"{len(due):,} ranks have not answered yet" if due else "asking ranks")
            time.sleep(0.05)


def problem_lines(problems: Mapping[int, str]) -> list[str]:
    """`ranks 0-3: no recorder`: each problem once."""
    return [f"{folded(side.ranks)}: {side.value}" for side in sides_of(problems.items())]

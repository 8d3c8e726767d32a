"""Asks for the output of ranks that a verdict names, while somebody looks at the job."""

from __future__ import annotations

from typing import Final

from frtop_probe.features.output.messages import ReadOutput
from frtop_tui.connect.asking import why_not_ask
from frtop_tui.connect.followers import Follower
from frtop_tui.connect.request_tracker import RequestTracker, in_state_already
from frtop_tui.diagnosis.model import Frame
from frtop_tui.features.output.telling import ranks_to_read, telling_lines

AGAIN_NS: Final = 15_000_000_000
"""Between two reads while a verdict lasts."""
_Asked = tuple[str, int, bool]
"""Host, key, and whether the process had ended."""


class OutputOfCulprits(Follower):
    """Its news are the telling lines: the same tuple until an answer changes them."""

    name = "output"
    nothing = ()

    def __init__(self, tracker: RequestTracker) -> None:
        super().__init__(tracker)
        self._lines: tuple[str, ...] = ()
        self._of: tuple[object, ...] = ()
        self._due: dict[_Asked, int] = {}

    @property
    def news(self) -> tuple[str, ...]:
        return self._lines

    @classmethod
    def of_file(cls, frame: Frame) -> tuple[str, ...]:
        return tuple(telling_lines(frame))

    @classmethod
    def lacks(cls, frame: Frame) -> bool:
        views = (frame.ranks[rank] for rank in ranks_to_read(frame))
        return any(
            view.output is None and not why_not_ask(frame, view, ReadOutput)[0] for view in views
        )

    def update(self, frame: Frame | None, now: int) -> None:
        """Asks each of these ranks, again after a while, and at once when it has ended."""
        views = [frame.ranks[rank] for rank in ranks_to_read(frame)] if frame is not None else []
        due: dict[_Asked, int] = {}
        for view in views:
            asked = view.host, view.key, view.exit_info is not None
            due[asked] = self._due.get(asked, 0)
            request = ReadOutput(key=view.key)
            if frame is None or now < due[asked] or why_not_ask(frame, view, request)[0]:
                continue
            due[asked] = now + AGAIN_NS
            self._tracker.request(
                view.host, request, in_state_already, now, agent=self._tracker.agent(view.host)
            )
        self._due = due
        of = tuple((view.rank, view.output) for view in views)
        if of != self._of and frame is not None:
            self._of, self._lines = of, tuple(telling_lines(frame))


FOLLOWERS: Final = (OutputOfCulprits,)

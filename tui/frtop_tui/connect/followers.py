"""What features ask of agents while a job is looked at. The core knows each by its name only."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from frtop_tui.connect.request_tracker import RequestTracker
from frtop_tui.diagnosis.model import Frame
from frtop_tui.job.model import Writing
from frtop_tui.registry import contributions


class Follower:
    """Belongs to the source's thread.

    `name` is that of the feature: screens and verbs order by it, and read its news.
    """

    name: ClassVar[str]
    nothing: ClassVar[Any] = None
    """The news before anything has come."""

    def __init__(self, tracker: RequestTracker) -> None:
        self._tracker = tracker

    @property
    def news(self) -> Any:
        """What came of all orders; the same object as before when nothing changed."""
        return self.nothing

    @property
    def writings(self) -> tuple[Writing, ...]:
        """Files that are being written, or were last: they are shown with the frame."""
        return ()

    @classmethod
    def of_file(cls, frame: Frame) -> Any:  # noqa: ARG003
        """The news that a recorded frame holds."""
        return cls.nothing

    def take(self, order: Any, frame: Frame | None, now: int) -> None:
        """Takes an order of the feature's own kind."""
        raise NotImplementedError

    def update(self, frame: Frame | None, now: int) -> None:
        """Asks what is due."""

    def end(self) -> None:
        """Takes back what ranks do for this operator, who leaves; see `is_ordering`."""

    @property
    def is_ordering(self) -> bool:
        """Whether a rank has not answered yet, so that leaving waits."""
        return False

    def close(self, now: int) -> None:
        """Gives up what is being fetched."""


def follower_kinds() -> Iterable[type[Follower]]:
    """Those of all features."""
    for kinds in contributions("follow", "FOLLOWERS"):
        yield from kinds

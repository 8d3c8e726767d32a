"""What features ask of agents while a job is looked at. The core knows each by its name only."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from frtop_probe import wire
from frtop_tui.connect.request_tracker import RequestTracker
from frtop_tui.diagnosis.model import Frame, JudgedRank
from frtop_tui.job.model import Writing
from frtop_tui.registry import contributions


class Order:
    """What somebody wants of ranks that takes several requests: a follower carries it out."""

    __slots__ = ()


class Follower:
    """Belongs to the source's thread.

    `name` is that of the feature: screens and verbs read its news by it.
    """

    name: ClassVar[str]
    orders: ClassVar[tuple[type[Order], ...]] = ()
    """What it carries out (`take`)."""
    requests: ClassVar[tuple[type[wire.RankRequest], ...]] = ()
    """Requests whose answers are its news (`answered`), and not in the frame."""
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
        """Takes one of `orders`."""
        raise NotImplementedError

    def asked(self, ranks: tuple[int, ...], now: int) -> None:
        """Takes note that one of `requests` goes to these ranks."""
        raise NotImplementedError

    def answered(self, view: JudgedRank, response: Any, now: int) -> None:
        """Takes an answer to one of `requests`, or one of ours that says why there is none."""
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

"""What features request from agents for a watched job. The core knows features only by name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from frtop_probe import wire
from frtop_tui.connect.request_tracker import RequestTracker
from frtop_tui.diagnosis.model import Frame, JudgedRank
from frtop_tui.job.model import Writing
from frtop_tui.registry import contributions


class Order:
    """A wish about ranks that takes several requests: a follower carries it out."""

    __slots__ = ()


class Follower:
    """Belongs to the source's thread.

    `name` is the feature's name, by which screens and verbs read its news.
    """

    name: ClassVar[str]
    orders: ClassVar[tuple[type[Order], ...]] = ()
    """The orders that it carries out (`take`)."""
    requests: ClassVar[tuple[type[wire.RankRequest], ...]] = ()
    """Requests whose answers are in its news (`answered`) and not in the frame."""
    nothing: ClassVar[Any] = None
    """The news before anything has come."""

    def __init__(self, tracker: RequestTracker) -> None:
        self._tracker = tracker

    @property
    def news(self) -> Any:
        """The results of all orders; the same object as before if nothing changed."""
        return self.nothing

    @property
    def writings(self) -> tuple[Writing, ...]:
        """Files that are being written, or were written last; shown with the frame."""
        return ()

    @classmethod
    def of_file(cls, frame: Frame) -> Any:  # noqa: ARG003
        """The news in a recorded frame."""
        return cls.nothing

    @classmethod
    def lacks(cls, frame: Frame) -> bool:  # noqa: ARG003
        """Whether an answer is still missing that belongs beside the frame's verdict."""
        return False

    def take(self, order: Any, frame: Frame | None, now: int) -> None:
        """Takes one of `orders`."""
        raise NotImplementedError

    def asked(self, ranks: tuple[int, ...], now: int) -> None:
        """Notes that one of `requests` goes to these ranks."""
        raise NotImplementedError

    def answered(self, view: JudgedRank, response: Any, now: int) -> None:
        """Takes an answer to one of `requests`, or our own error if there is none."""
        raise NotImplementedError

    def update(self, frame: Frame | None, now: int) -> None:
        """Sends the requests that are due."""

    def end(self) -> None:
        """Cancels what ranks do for this operator, who is leaving; see `is_ordering`."""

    @property
    def is_ordering(self) -> bool:
        """Whether leaving has to wait for a rank's answer."""
        return False

    def close(self, now: int) -> None:
        """Cancels what is being fetched."""


def follower_kinds() -> Iterable[type[Follower]]:
    """The followers of all features."""
    for kinds in contributions("follow", "FOLLOWERS"):
        yield from kinds

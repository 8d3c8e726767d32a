"""The seam between screens and what they show."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from frtop_tui.job.model import Frame


class Source(Protocol):
    """Gives the newest frame; takes wishes. Never blocks its caller."""

    def frame(self) -> Frame:
        """The newest frame; the same object as before when nothing changed."""

    def watch(self, ranks: Iterable[int]) -> None:
        """Keep the ops, process and stacks of these ranks fresh (a screen shows them)."""

    def dump(self, ranks: Iterable[int]) -> None:
        """Take the stacks of these ranks once, now."""

    def close(self) -> None:
        """Ends threads and sockets."""

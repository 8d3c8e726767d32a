"""The seam between screens and what they show."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from frtop_tui.diagnosis.model import Frame
from frtop_tui.job.naming import JobKey


class Source(Protocol):
    """Gives the newest frame; takes wishes. Never blocks its caller.

    What becomes of a wish is seen in later frames. One that cannot be fulfilled (there is
    no live job, our key may not) is told there, never raised.
    """

    def frame(self) -> Frame:
        """The newest frame; the same object as before when nothing changed."""

    def watch(self, ranks: Iterable[int]) -> None:
        """Keep the ops, process and stacks of these ranks fresh (a screen shows them)."""

    def dump(self, ranks: Iterable[int]) -> None:
        """Take the stacks of these ranks once, now."""

    def inspect(self, rank: int) -> None:
        """Ask a rank what is in the tensors of its pending ops: `JudgedRank.tensors`."""

    def save(self, rank: int, sequence: int, path: Path) -> None:
        """Write the tensors of one pending op as safetensors: `Frame.writings`."""

    def capture(self, path: Path, *, automatic: bool = False) -> None:
        """Write everything that can be known now into one file: `Frame.writings`."""

    def choose(self, job: JobKey | None) -> None:
        """Show this job from now on; None: the newest."""

    def close(self) -> None:
        """Ends threads and sockets."""

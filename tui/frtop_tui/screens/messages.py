"""Messages by which screens ask the application to open a screen or send a request."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from textual.message import Message

from frtop_probe import wire
from frtop_probe.ring.rank_ranges import fold
from frtop_tui.connect.source import Asked
from frtop_tui.job.arrivals import LateIn
from frtop_tui.job.groups import Identifier
from frtop_tui.job.naming import GroupKey


class FeatureMessage(Message):
    """A request to a feature; `HANDLERS` of its module `screens` carries it out."""


@dataclass(eq=False)
class OpenRank(Message):
    """Open the screen of one rank."""

    rank: int


@dataclass(eq=False)
class OpenRanks(Message):
    """Open the table of ranks with a filter; `editing` puts the cursor into the filter."""

    filter_text: str = ""
    editing: bool = False


def open_ranks(ranks: Collection[int]) -> Message:
    """Opens the one rank, or the table of these ranks."""
    if len(ranks) == 1:
        return OpenRank(next(iter(ranks)))
    return OpenRanks(f"rank:{fold(sorted(ranks))}")


@dataclass(eq=False)
class OpenGroup(Message):
    """Open the screen of the first of these groups; `n` and `p` go to the others."""

    keys: tuple[GroupKey, ...]


@dataclass(eq=False)
class LookThrough(Message):
    """Show the ranks of the overview by another lens."""

    lens: str


@dataclass(eq=False)
class OpenView(Message):
    """Open one of the views on top of the visible screen."""

    name: str


@dataclass(eq=False)
class OpenTimeline(FeatureMessage):
    """Open the timeline of the marked ranks, of a group, or of all, with the cursor on `rank`.

    With `late`, on the last of these ops that the rank was the last to enter.
    """

    rank: int | None = None
    group: Identifier | None = None
    late: LateIn | None = None


@dataclass(eq=False)
class Do(Message):
    """Ask these ranks. The user has seen what it costs."""

    request: Asked
    ranks: Collection[int] = ()


@dataclass(eq=False)
class ExportJob(Message):
    """Write the job to a file in one of the formats."""

    path: Path
    name: str


@dataclass(eq=False)
class CaptureJob(Message):
    """Write everything known to this file."""

    path: Path


@dataclass(eq=False)
class ChooseJob(Message):
    """Show another job."""

    job: wire.Job

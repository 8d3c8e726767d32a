"""Messages by which screens ask the application to open a screen or send a request."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from textual.message import Message

from frtop_probe import wire
from frtop_tui.connect.base import Asked
from frtop_tui.job.arrivals import LateIn
from frtop_tui.job.groups import Identifier
from frtop_tui.job.naming import GroupKey


class FeatureMessage(Message):
    """What a feature does: `HANDLERS` of its module `screens` say how."""


class OpenRank(Message):
    """Open the screen of one rank."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.rank = rank


class OpenRanks(Message):
    """Open the table of ranks with a filter; `editing` puts the cursor into the filter."""

    def __init__(self, filter_text: str = "", *, editing: bool = False) -> None:
        super().__init__()
        self.filter_text = filter_text
        self.editing = editing


class OpenGroup(Message):
    """Open the screen of a process group; `keys` are this one, and those to go on to."""

    def __init__(self, keys: Iterable[GroupKey]) -> None:
        super().__init__()
        self.keys = tuple(keys)


class LookThrough(Message):
    """Show the ranks of the overview by another lens."""

    def __init__(self, lens: str) -> None:
        super().__init__()
        self.lens = lens


class OpenWaits(Message):
    """Open the wait-for graph."""


class OpenSettings(Message):
    """Open the versions and settings of all ranks."""


class OpenTimeline(FeatureMessage):
    """Open the timeline: of the marked ranks, of a group, or of all; the cursor is on `rank`.

    With `late` it is on the last of these ops to which the rank came last.
    """

    def __init__(
        self,
        rank: int | None = None,
        group: Identifier | None = None,
        late: LateIn | None = None,
    ) -> None:
        super().__init__()
        self.rank, self.group, self.late = rank, group, late


class OpenStacks(Message):
    """Open the merged stacks."""


class Do(Message):
    """Ask these ranks; what it costs, the user has been told."""

    def __init__(self, request: Asked, ranks: Iterable[int] = ()) -> None:
        super().__init__()
        self.request, self.ranks = request, tuple(ranks)


class ExportJob(Message):
    """Write the job to a file in one of the formats."""

    def __init__(self, path: Path, name: str) -> None:
        super().__init__()
        self.path, self.name = path, name


class CaptureJob(Message):
    """Write everything known to this file."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path


class ChooseJob(Message):
    """Show another job."""

    def __init__(self, job: wire.Job) -> None:
        super().__init__()
        self.job = job

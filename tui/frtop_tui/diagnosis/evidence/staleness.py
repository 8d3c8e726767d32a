"""Of when it is what is known of a rank: an agent on a full host reads seldom.

A rank that is read from outside is known as it was in the last look. What it waits in grows no
older than that, and it is absent from an op only if it was looked at after others came to it.
"""

from __future__ import annotations

from typing import Final

from frtop_probe import wire
from frtop_tui.job.model import Rank

NOW: Final = 1 << 62
"""What is known is of now: later than any time."""


def is_stale(view: Rank) -> bool:
    """Whether what is known of any of its groups is not of now."""
    return any(one.as_of_ns for one in view.group_progress.values())


def known_until_ns(view: Rank, group: int | None = None) -> int:
    """Until when it is known how far a rank is, in ns of the operator's clock; else `NOW`.

    Args:
        view: the rank.
        group: the rank's own id of a group; None for ops that no group counts. These are known as
            long as anything of the rank is.
    """
    counted = view.group_progress.get(group) if group is not None else None
    if counted is not None:
        return _until(view, counted)
    return max((_until(view, one) for one in view.group_progress.values()), default=NOW)


def _until(view: Rank, progress: wire.GroupProgress) -> int:
    return progress.as_of_ns + view.clock_ns if progress.as_of_ns else NOW

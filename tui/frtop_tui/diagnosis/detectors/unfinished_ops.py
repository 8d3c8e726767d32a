"""Ops that files say are unfinished, where nothing else is wrong: then nobody knows.

That nobody is seen to wait proves little. C++ that waits shows no Python frame, and other ranks
may have dumps in which nothing is unfinished. In a live job ops are pending all the time.
"""

from __future__ import annotations

from typing import Final

from frtop_tui.diagnosis.detectors.context import Context
from frtop_tui.diagnosis.finding import Detail, Finding
from frtop_tui.job.model import Health, Rank

_OPEN: Final = frozenset[Health]({"healthy", "undecided", "starting", "dead", "ended"})
"""Healths of frames that are not judged yet, to which such ops add something."""


class UnfinishedOps(Detail, frozen=True):
    """`ranks` as their files tell of them, with the ops that are unfinished as `pending`."""

    ranks: tuple[Rank, ...]


def detect(context: Context) -> list[Finding]:
    """One finding if any op is unfinished; for frames of which no other detector says anything."""
    recorded = context.frame.recorded
    if recorded is None or not recorded.unfinished or context.frame.health not in _OPEN:
        return []
    return [
        Finding(
            kind="undecided",
            detail=UnfinishedOps(tuple(recorded.unfinished.values())),
            key=("unfinished", *recorded.unfinished),
            progress="unknown",
        )
    ]

"""All detectors, in the order of causes.

A mismatch explains the deaths and waits that follow from it, a death explains the waits for
the dead, a deadlock those of its ring. What is left is followed to its end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from frtop_tui.diagnosis.detectors import deadlock, early_exit, wait_ends, without_numbers
from frtop_tui.diagnosis.detectors.context import Context
from frtop_tui.diagnosis.detectors.deaths import died
from frtop_tui.diagnosis.detectors.mismatch import live_mismatch
from frtop_tui.diagnosis.finding import Finding

Detector = Callable[[Context], list[Finding]]

ORDER: Final[tuple[Detector, ...]] = (
    live_mismatch.detect,
    died.detect,
    early_exit.detect,
    without_numbers.detect,
    deadlock.detect,
    wait_ends.detect,
)


def detect(context: Context) -> list[Finding]:
    """Root causes, the most urgent first."""
    found: list[Finding] = []
    for detector in ORDER:
        fresh = detector(context)
        context.accept(fresh)
        found += fresh
    return sorted(found, key=urgency)


def urgency(finding: Finding) -> tuple[bool, bool, bool, int]:
    """Causes with victims first, then those without progress, then the oldest."""
    return (
        finding.kind == "undecided",
        not finding.victims,
        finding.progress == "active",
        finding.since_ns,
    )

"""Known faults whose signs are seen in the job of a frame, beside its verdict."""

from __future__ import annotations

from typing import Final

from frtop_tui.diagnosis.model import Frame
from frtop_tui.features.known_faults.facts import facts_of
from frtop_tui.features.known_faults.matching import lines_of, matches
from frtop_tui.features.known_faults.table import FAULTS


def known_faults(frame: Frame) -> list[str]:
    """A sentence for each of the surest matches; none for a job that neither hangs nor died."""
    facts = facts_of(frame)
    return list(lines_of(matches(facts, FAULTS))) if facts is not None else []


NOTES: Final = {"known_faults": known_faults}

"""Files that a real job left, in `recorded/`: what is said of them stays.

They are of version 1. Until the first release they may be written again; from then on a change of
a format has to leave them readable.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from frtop_tui.files.loader import open_paths

RECORDED = Path(__file__).parent / "recorded"
SLEEPING = RECORDED / "sleeping.cap"
MISMATCH = RECORDED / "mismatch.cap"
BOXES = (RECORDED / "node0.box", RECORDED / "node1.box")


@pytest.mark.parametrize(
    ("paths", "health", "said"),
    [
        ((SLEEPING,), "hung", ("not_entered", "confirmed", (2,), "sleeping")),
        ((MISMATCH,), "mismatch", ("mismatch", "confirmed", (2,), "mismatch")),
        (BOXES, "dead", ("dead", "confirmed", (2,), "exception")),
    ],
)
def test_recorded_files_keep_their_facts(
    paths: tuple[Path, ...], health: str, said: tuple[object, ...]
) -> None:
    frame = open_paths(paths)
    verdict = frame.verdicts[0]
    culprits = verdict.culprits or verdict.parties[-1]
    assert frame.health == health
    assert (verdict.kind, verdict.confidence, culprits, verdict.why.cause) == said

"""Files of the first version are read and keep their meaning.

`old/` holds captures and black boxes as earlier builds wrote them: those of format 1, and
`format2-*`. `expected.json` holds the facts that these builds reported for each. Sentences may
change, facts may not.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from frtop_tui.diagnosis.model import Frame
from frtop_tui.export.loader import open_paths
from frtop_tui.report.document import document

OLD = Path(__file__).parent / "old"
EXPECTED: dict[str, dict[str, Any]] = json.loads((OLD / "expected.json").read_text())


def facts(frame: Frame) -> dict[str, Any]:
    """What must never change: health, states, who is blocked in what, verdicts."""
    report = document(frame)
    ranks = report["ranks"].values()
    verdicts = [{**verdict, "why": dict(verdict["why"])} for verdict in report["verdicts"]]
    for verdict in verdicts:
        for sentence in ("headline", "evidence", "missing", "next"):
            del verdict[sentence]
        del verdict["why"]["text"]
    return {
        "health": report["health"],
        "states": dict(Counter(rank["state"] for rank in ranks)),
        "blocked": sorted({rank["blocked_on"]["kind"] for rank in ranks if rank["blocked_on"]}),
        "verdicts": verdicts,
    }


@pytest.mark.parametrize("name", [name for name in EXPECTED if name.endswith(".cap")])
def test_an_old_capture_keeps_its_facts(name: str) -> None:
    assert facts(open_paths([OLD / name])) == EXPECTED[name]


def test_old_black_boxes_keep_their_facts() -> None:
    assert facts(open_paths([*OLD.glob("*.box")])) == EXPECTED["boxes"]

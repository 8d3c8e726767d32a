"""Files of each version are read for ever and keep their meaning.

`old/` holds captures as builds of each format wrote them: those of format 1, `format2-*` and
`format3-*`, whose histories are in columns and one of which is redacted. Black boxes lie there
in the first container, and in `gzip-boxes` in that of today. `expected.json` holds the facts that
these builds reported for each. Sentences may change, facts may not. A change of a format comes
with a file that the build before it wrote.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from frtop_probe import archive
from frtop_tui.diagnosis.model import Frame
from frtop_tui.files import capture
from frtop_tui.files.loader import open_paths
from frtop_tui.text.document import document

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


@pytest.mark.parametrize(("folder", "name"), [("", "boxes"), ("gzip-boxes", "gzip-boxes")])
def test_old_black_boxes_keep_their_facts(folder: str, name: str) -> None:
    assert facts(open_paths([*(OLD / folder).glob("*.box")])) == EXPECTED[name]


def test_each_format_and_container_is_among_the_files() -> None:
    captures = [path for path in OLD.glob("*.cap") if archive.kind_of(path) == capture.KIND]
    formats = {
        msgspec.msgpack.decode(archive.read(one, capture.KIND))["format"] for one in captures
    }
    assert formats == set(range(1, capture.FORMAT + 1))
    beginnings = {path.read_bytes()[:8] for path in (*captures, *OLD.rglob("*.box"))}
    assert beginnings == {archive.FIRST_MAGIC, archive.MAGIC[:8]}
    assert {path.read_bytes()[:8] for path in OLD.rglob("*.box")} == beginnings

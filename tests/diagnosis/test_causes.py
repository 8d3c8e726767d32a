"""Every cause, and every place of a thread, has its words; the page for users lists all causes."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

from frtop_tui.diagnosis.causes import CAUSES, LOCATIONS, Cause, LocationKind

DOCS = Path(__file__).parents[2] / "docs/diagnosis.md"
WORDS = {word for part in get_args(Cause) for word in get_args(part)}
LONGEST_CELL = 22


def test_every_cause_has_its_words() -> None:
    assert CAUSES.keys() == WORDS
    assert LOCATIONS.keys() == set(get_args(LocationKind))


def test_the_words_of_a_cause_say_something() -> None:
    page = DOCS.read_text()
    for cause, words in CAUSES.items():
        assert words.sentence, cause
        assert words.step, cause
        assert 0 < len(words.cell) <= LONGEST_CELL or cause == "unknown", cause
        assert f"| `{cause}` | {words.sentence} |" in page


def test_the_step_of_a_place_can_be_filled_in() -> None:
    names = ("pid", "line", "rank", "stacks", "top", "file")
    for kind, words in LOCATIONS.items():
        assert words.step.format(**dict.fromkeys(names, "it")), kind

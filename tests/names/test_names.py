"""One word, one meaning: what `make check` demands of names (docs/glossary.md)."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
SOURCES: Final = {
    str(path.relative_to(ROOT)): path.read_text()
    for room in ("probe", "tui")
    for path in sorted((ROOT / room).rglob("*.py"))
}
FEWEST_LINES: Final = 30
MANY: Final = 2
"""Importers: what only one module imports belongs into it."""
ASKED_FOR: Final = {
    "features": frozenset({"verbs", "settings", "notes", "schemas", "screens", "follow"}),
    "cases": frozenset({"case", "words"}),
    "files": frozenset({"reports"}),
}
"""Modules of features, cases and formats that a registry or a table asks for by these names."""
OF_TORCH: Final = "is_floating_point"
RETIRED: Final = frozenset({
    "told", "stands", "kept", "behind", "point", "camp", "parting", "whole", "light", "story",
    "moment", "errand", "wish", "scribe", "desk", "door", "roster", "stray", "seat",
    "arrival", "saying", "carried", "tally", "mourn",
})  # fmt: skip
"""Words that meant too much, or nothing that the field calls so."""
_TEXTS: Final = re.compile(
    r'""".*?"""|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|#[^\n]*', re.DOTALL
)
"""Strings and comments."""
_PARTS: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")


def words(identifier: str) -> set[str]:
    """`asked_so_far` and `AskedSoFar` have the words asked, so and far."""
    return {part.lower() for part in _PARTS.findall(identifier)}


def test_no_two_public_classes_share_a_name() -> None:
    homes: defaultdict[str, list[str]] = defaultdict(list)
    for path, text in SOURCES.items():
        for name in re.findall(r"^class ([A-Za-z]\w*)", text, re.MULTILINE):
            homes[name].append(path)
    assert {name: paths for name, paths in homes.items() if len(paths) > 1} == {}


def test_no_identifier_has_a_retired_word() -> None:
    found: defaultdict[str, set[str]] = defaultdict(set)
    for path, text in SOURCES.items():
        for name in set(re.findall(r"[^\W\d]\w*", _TEXTS.sub(" ", text))) - {OF_TORCH}:
            if words(name) & RETIRED:
                found[path].add(name)
    assert dict(found) == {}


def test_modules_are_not_splinters() -> None:
    """A package's own files, what a program runs and what many import are as short as they are."""
    short = {
        path: lines
        for path, text in SOURCES.items()
        if not (at := Path(path)).name.startswith("__")
        and at.stem not in ASKED_FOR.get(at.parents[1].name, ())
        and (lines := len(text.splitlines())) < FEWEST_LINES
        and sum(f".{at.stem} import" in other for other in SOURCES.values()) < MANY
    }
    assert short == {}

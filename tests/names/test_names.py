"""One word, one meaning: what `make check` demands of names (docs/glossary.md)."""

from __future__ import annotations

import ast
import io
import keyword
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
SOURCES: Final = sorted(path for room in ("probe", "tui") for path in (ROOT / room).rglob("*.py"))
FEWEST_LINES: Final = 30
MANY: Final = 2
"""Importers: what only one module imports belongs into it."""
ASKED_FOR: Final = {
    "features": frozenset({"verbs", "settings", "notes", "screens", "follow"}),
    "cases": frozenset({"case", "words"}),
    "files": frozenset({"reports"}),
}
"""Modules of features, cases and formats that a registry or a table asks for by these names."""
EXEMPT: Final = frozenset({*keyword.kwlist, *keyword.softkwlist, "is_floating_point"})
"""Python's own words, and torch's."""
RETIRED: Final = frozenset({
    "told", "stands", "kept", "behind", "point", "camp", "parting", "whole", "light", "story",
    "moment", "errand", "wish", "scribe", "desk", "door", "roster", "stray", "seat",
    "arrival", "saying", "carried", "tally", "mourn",
})  # fmt: skip
"""Words that meant too much, or nothing that the field calls so."""
_PARTS: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def identifiers(path: Path) -> Iterator[str]:
    for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
        if token.type == tokenize.NAME and token.string not in EXEMPT:
            yield token.string


def words(identifier: str) -> set[str]:
    """`asked_so_far` and `AskedSoFar` have the words asked, so and far."""
    return {part.lower() for part in _PARTS.findall(identifier)}


def test_no_two_public_classes_share_a_name() -> None:
    homes: defaultdict[str, list[str]] = defaultdict(list)
    for path in SOURCES:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(relative(path))
    assert {name: paths for name, paths in homes.items() if len(paths) > 1} == {}


@pytest.mark.parametrize("room", ["probe", "tui"])
def test_no_identifier_has_a_retired_word(room: str) -> None:
    found: defaultdict[str, set[str]] = defaultdict(set)
    for path in SOURCES:
        if relative(path).startswith(room):
            for name in identifiers(path):
                if words(name) & RETIRED:
                    found[relative(path)].add(name)
    assert dict(found) == {}


def test_modules_are_not_splinters() -> None:
    """A package's own files, what a program runs and what many import are as short as they are."""
    texts = {path: path.read_text() for path in SOURCES}
    short = {
        relative(path): lines
        for path, text in texts.items()
        if not path.name.startswith("__")
        and path.stem not in ASKED_FOR.get(path.parents[1].name, ())
        and (lines := len(text.splitlines())) < FEWEST_LINES
        and sum(f".{path.stem} import" in other for other in texts.values()) < MANY
    }
    assert short == {}

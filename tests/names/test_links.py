"""Links in README and docs lead somewhere, to headings too, and pages that the code names exist."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
SOURCES: Final = ("probe", "tui", "bench", "gpu_kit", "tests")
_FENCED: Final = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_LINK: Final = re.compile(r"\]\(([^()\s]+)\)")
_HEADING: Final = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)
_NAMED: Final = re.compile(r"\bdocs/[\w/-]+\.md\b")


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    seen: Counter[str] = Counter()
    found = set()
    for heading in _HEADING.findall(_FENCED.sub("", page.read_text())):
        text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)
        anchor = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        found.add(f"{anchor}-{seen[anchor]}" if seen[anchor] else anchor)
        seen[anchor] += 1
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for link in _LINK.findall(_FENCED.sub("", page.read_text())):
        path, _, anchor = link.partition("#")
        if "://" in path:
            continue
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


def test_pages_that_the_program_names_exist() -> None:
    named = {
        (name, str(path.relative_to(ROOT)))
        for folder in SOURCES
        for path in (ROOT / folder).rglob("*.py")
        for name in _NAMED.findall(path.read_text())
    }
    assert {(name, path) for name, path in named if not (ROOT / name).exists()} == set()

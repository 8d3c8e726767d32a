"""Links of the pages lead somewhere, and what `make docs` writes from the program is complete."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from frtop_probe import wire
from frtop_tui.cli.parser import parser
from frtop_tui.files.formats import op_table
from frtop_tui.screens.commands import COMMANDS

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
ROOMS = ("probe", "tui", "bench", "gpu_kit", "tests")
LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """As GitHub names the headings of a page; of equal ones only the first."""
    heads = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", head) for head in heads)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in plain}


def leads_somewhere(page: Path, link: str) -> bool:
    name, _, anchor = link.partition("#")
    target = (page.parent / name).resolve() if name else page
    return target.exists() and (not anchor or anchor in anchors(target))


def test_links_lead_somewhere() -> None:
    links = [
        (page, link) for page in PAGES for link in LINK.findall(CODE.sub("", page.read_text()))
    ]
    ours = [(page, link) for page, link in links if not re.match(r"\w+:", link)]
    assert [(page.name, link) for page, link in ours if not leads_somewhere(page, link)] == []


def test_pages_that_the_program_names_are_there() -> None:
    sources = (path for room in ROOMS for path in (ROOT / room).rglob("*.py"))
    named = {one for path in sources for one in re.findall(r"docs/[\w/-]+\.md", path.read_text())}
    assert named
    assert [one for one in named if not (ROOT / one).exists()] == []


def test_pages_are_made_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    from docs import formats, keys  # noqa: PLC0415 - found only now

    fields = formats.page()
    for heading in ("Update (array)", "BlackBox (array)", "JudgedRank (map)"):
        assert f"### {heading}\n" in fields
    assert all(f"| `{name}` |" in fields for name in op_table.COLUMNS)
    update = fields.partition("### Update (array)")[2].partition("###")[0]
    assert all(f"  {name} " in update for name in wire.Update.__struct_fields__)
    table = keys.table()
    assert all(f"`:{one.name}" in table for one in COMMANDS)


def test_the_manual_page_has_every_command_and_its_options(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("argparse_manpage")
    monkeypatch.syspath_prepend(str(ROOT))
    monkeypatch.setenv("COLUMNS", "80")
    from docs import manual  # noqa: PLC0415 - found only now

    page = manual.page().replace("\\-", "-")
    _, verbs = parser()
    assert [name for name in verbs.choices if f".SS \\fBfrtop {name}\\fR" not in page] == []
    assert "'host*_gpu{rank}', 'rank{rank}/trace.json'" in page
    assert "exit status of diagnose:" in page

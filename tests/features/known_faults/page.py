"""The table of the page on known faults, made of the program's: `python -m` writes it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from frtop_tui.features.known_faults.table import FAULTS

PAGE: Final = Path(__file__).parents[3] / "docs" / "features" / "known_faults.md"
HEAD: Final = ("| fault | what goes wrong | affected | sign | certainty |", "|---|---|---|---|---|")


def rows() -> list[str]:
    """The lines of the table."""
    lines = [*HEAD]
    for one in FAULTS:
        affected = f"{one.library} {one.versions}" if one.versions is not None else ""
        condition = f"if {one.provided}" if one.provided else ""
        where = "; ".join(filter(None, (affected, condition)))
        name = f"[{one.name}]({one.source})"
        lines.append(f"| {name} | {one.fault} | {where} | {one.seen} | {one.sure} |")
    return lines


def rewritten(page: str) -> str:
    """The page with the present table in place of the one that it has."""
    before, _, rest = page.partition(HEAD[0])
    after = [line for line in rest.split("\n")[1:] if not line.startswith("|")]
    return before + "\n".join([*rows(), *after])


if __name__ == "__main__":
    PAGE.write_text(rewritten(PAGE.read_text()))

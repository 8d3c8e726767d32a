"""Writes the manual page into dist/docs/frtop.1, from the parser of the command line."""

from __future__ import annotations

import os
import sys
from importlib import metadata
from pathlib import Path
from typing import Final

from argparse_manpage.manpage import Manpage

from frtop_tui.cli.parser import parser

OUT: Final = Path(__file__).parents[1] / "dist" / "docs" / "frtop.1"


def page() -> str:
    """The page as troff."""
    # One line per text: troff fills lines itself, and takes one that begins with ' for a macro.
    os.environ["COLUMNS"] = "10000"
    top, verbs = parser()
    # `frtop --help` lists commands by groups only; here each of them follows in full, at the end.
    verbs.help = None
    groups = top._action_groups  # noqa: SLF001
    groups.append(groups.pop(0))
    groups[-1].title = "commands"
    for verb in verbs.choices.values():  # the page has no epilogs of commands, such as statuses
        verb.description = "\n\n".join(filter(None, (verb.description, verb.epilog)))
    about = {
        "description": metadata.metadata("frtop")["Summary"],
        "manual_title": "frtop",
        "project_name": "frtop",
        "version": metadata.version("frtop"),
    }
    return str(Manpage(top, _data=about, format="single-commands-section"))


if __name__ == "__main__":
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(page(), encoding="utf-8")
    sys.stdout.write(f"{OUT}\n")

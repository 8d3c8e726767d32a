"""The name of a program, by its file or by the title of its process."""

from __future__ import annotations

import re
from typing import Final

_INSTALLED: Final = re.compile(r"/(?:site|dist)-packages/(.+?)(?:/__main__)?\.py$")
_WORK: Final = re.compile(
    r"\w+::(?!IDLE)(?:_([A-Za-z]\w*?)__|([A-Z]\w*)|([a-z_]\w*)(?![\w.]))", re.ASCII
)
"""Ray's titles, as `ray::Trainer.fit`. The name of a private method begins with its class.

A word before a dot without a capital is not a class, but part of a name given to the call.
"""


def file_name(path: str) -> str:
    """Returns the script's name, or the package's if it is run as one."""
    *_, parent, name = f"/{path}".rsplit("/", 2)
    return parent if name == "__main__.py" and parent else name


def installed_module(path: str) -> str:
    """Returns `engine.worker` for a script of an installed package: it is not a user's program."""
    found = _INSTALLED.search(path)
    return found[1].replace("/", ".") if found is not None else ""


def work_of(title: str) -> str:
    """Returns the class or function that a framework's worker runs, by its title; else ""."""
    found = _WORK.match(title)
    return next(filter(None, found.groups()), "") if found is not None else ""

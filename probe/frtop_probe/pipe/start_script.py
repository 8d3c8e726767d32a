"""What the operator writes first to the shell: finds a Python, and has stage 0 in it."""

from __future__ import annotations

import re
import shlex
from functools import cache
from pathlib import Path
from typing import Final

_HERE: Final = Path(__file__).parent
PYTHON_NAMED: Final = b"FRTOP_PYTHON="
"""What a script begins with that tries one Python only."""
_STAGE: Final = "@STAGE@"
_BECOME: Final = "@BECOME@"
_COMMENT: Final = re.compile(r"^\s*#.*\n", re.MULTILINE)


def start_script(
    python: str = "", program: str = "stage_zero", last: str = "", user: str = ""
) -> bytes:
    """The script; it ends by becoming Python, which says `frtop-boot`, or says `frtop-error`.

    Args:
        python: The only Python to try: a path on that host, or a name on its PATH. With "", those
            on PATH are tried, then those that the user's own processes run.
        program: What that Python runs: a module of this folder that imports nothing of ours.
        last: One to try in the same way where none of the others serves.
        user: Whose jobs are looked at, by a shell of root: what runs becomes this user first.
    """
    chosen = f"{PYTHON_NAMED.decode()}{shlex.quote(python)}\n" if python else ""
    settings = f"FRTOP_LAST_PYTHON={shlex.quote(last)}\nFRTOP_USER={shlex.quote(user)}\n"
    return f"{chosen}{settings}{_script(program, as_user=bool(user))}".encode()


@cache
def _script(program: str, *, as_user: bool) -> str:
    finder = _bare(_HERE.joinpath("finder.sh").read_text(encoding="utf-8"))
    become = _stage("become_user") if as_user else ""
    return finder.replace(_STAGE, _stage(program)).replace(_BECOME, become)


def _stage(program: str) -> str:
    source = _bare(_HERE.joinpath(f"{program}.py").read_text(encoding="utf-8"))
    if "'" in source:
        raise ValueError(f"{program} stands between single quotes, and must have none")
    return source


def _bare(source: str) -> str:
    """Without lines that are comments: nobody reads them there."""
    return _COMMENT.sub("", source)

"""Makes the script that the operator first sends to the shell: finds a Python, contains stage 0."""

from __future__ import annotations

import pkgutil
import re
import shlex
from functools import cache
from typing import Final

PYTHON_NAMED: Final = b"FRTOP_PYTHON="
"""How a script begins that tries only one Python."""
_STAGE: Final = "@STAGE@"
_BECOME: Final = "@BECOME@"
_COMMENT: Final = re.compile(r"^\s*#.*\n", re.MULTILINE)


def start_script(
    python: str = "", program: str = "stage_zero", last: str = "", user: str = ""
) -> bytes:
    """The script; it becomes Python, which says `frtop-boot`, or it says `frtop-error` and ends.

    Args:
        python: The only Python to try: a path on that host, or a name on its PATH. With "", it
            tries those on PATH, then those that the user's own processes run.
        program: The module that this Python runs: in this folder, imports nothing of ours.
        last: A Python to try if none of the others works.
        user: The user whose jobs a shell of root looks at: the program first becomes this user.
    """
    chosen = f"{PYTHON_NAMED.decode()}{shlex.quote(python)}\n" if python else ""
    settings = f"FRTOP_LAST_PYTHON={shlex.quote(last)}\nFRTOP_USER={shlex.quote(user)}\n"
    return f"{chosen}{settings}{_script(program, as_user=bool(user))}".encode()


@cache
def _script(program: str, *, as_user: bool) -> str:
    become = stage("become_user") if as_user else ""
    return _bare("finder.sh").replace(_STAGE, stage(program)).replace(_BECOME, become)


def stage(program: str = "stage_zero") -> str:
    """The source of a module in this folder, for `python -c`, and for a shell's single quotes."""
    source = _bare(f"{program}.py")
    if "'" in source:
        raise ValueError(f"{program} goes between single quotes and must not contain any")
    return source


def _bare(name: str) -> str:
    """A file without comment lines: nobody reads them there."""
    data = pkgutil.get_data(__package__, name)
    assert data is not None, "its loader reads files"
    return _COMMENT.sub("", data.decode())

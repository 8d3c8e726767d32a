"""What we send to the other end of a pipe: the agent, and py-spy if it is missing."""

from __future__ import annotations

import platform
import shutil
import sysconfig
from pathlib import Path
from typing import Final

from frtop_probe.pipe.lines import block, tool_block
from frtop_probe.pipe.packing import AGENT, archive
from frtop_tui.errors import Missing

TOOL: Final = "py-spy"


def agent_lines(program: str = AGENT) -> bytes:
    """The lines with the agent, or with another program (the doctor). Takes a fifth of a second.

    Raises:
        Missing: a package that we send is not installed here.
    """
    more = () if program == AGENT else (program.encode(),)
    try:
        return b"".join(block(b"archive", archive(program), *more))
    except ModuleNotFoundError as error:
        raise Missing(f"{error}: it is sent to the hosts", "reinstall frtop") from error


def fits(machine: str) -> bool:
    """Whether our py-spy runs on such a machine."""
    return machine == platform.machine()


def tool_lines() -> tuple[bytes, ...]:
    """The lines with py-spy, some MB; empty if it is not installed here. Takes half a second."""
    path = Path(sysconfig.get_path("scripts")) / TOOL
    found = str(path) if path.exists() else shutil.which(TOOL)
    if found is None:
        return ()
    try:
        return tuple(tool_block(TOOL, Path(found).read_bytes()))
    except OSError:
        return ()

"""What we send to the other end of a pipe: the agent, and py-spy if it is missing."""

from __future__ import annotations

import platform
import shutil
import sysconfig
import zipfile
from pathlib import Path
from typing import Final

from frtop_probe.pipe.lines import block, tool_block
from frtop_probe.pipe.packing import AGENT, archive
from frtop_probe.proc import child_process
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


def tool_lines(machine: str) -> tuple[bytes, ...]:
    """The lines with py-spy, some MB; empty if none here runs on such a machine.

    Takes half a second.
    """
    program = _in_archive(f"{TOOL}-{machine}.xz")
    if not program and machine == platform.machine():
        path = Path(sysconfig.get_path("scripts")) / TOOL
        found = str(path) if path.exists() else shutil.which(TOOL)
        try:
            program = Path(found).read_bytes() if found else b""
        except OSError:
            return ()
    return tuple(tool_block(TOOL, program)) if program else ()


def _in_archive(name: str) -> bytes:
    """A file beside our sources if frtop is one file; b"" without."""
    if (path := child_process.archive()) is None:
        return b""
    import lzma  # noqa: PLC0415 - such a file was unpacked by it

    with zipfile.ZipFile(path) as content:
        return lzma.decompress(content.read(name)) if name in content.namelist() else b""

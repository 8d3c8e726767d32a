"""Reads who a process is and what it may do. Nothing that is read here waits for the process."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from frtop_probe.features.doctor.facts import ProcessRights

YAMA: Final = "proc/sys/kernel/yama/ptrace_scope"
NAMESPACES: Final = ("pid", "mnt", "net", "user", "ipc")
_READ: Final = 64 * 1024
_INODE: Final = re.compile(r"\[(\d+)\]")


def read_rights(pid: int | str, root: Path = Path("/")) -> ProcessRights:
    """Reads one process; "self" is us. Of one that is gone nothing is known."""
    folder = root / "proc" / str(pid)
    fields = _fields(read_text(folder / "status"))
    return ProcessRights(
        pid=_number(fields.get("Pid", "")) or (pid if isinstance(pid, int) else 0),
        uid=_number(fields.get("Uid", "")),
        gid=_number(fields.get("Gid", "")),
        owner=_owner(folder),
        effective=_mask(fields.get("CapEff", "")),
        permitted=_mask(fields.get("CapPrm", "")),
        bounding=_mask(fields.get("CapBnd", "")),
        seccomp=_number(fields.get("Seccomp", "")),
        no_new_privileges=fields.get("NoNewPrivs") == "1",
        state=fields.get("State", "")[:1],
        tracer=_number(fields.get("TracerPid", "")) or 0,
        namespaces=_namespaces(folder),
    )


def read_yama(root: Path = Path("/")) -> str:
    """Reads kernel.yama.ptrace_scope; "" where the kernel has no Yama."""
    return read_text(root / YAMA).strip()


def read_text(path: Path) -> str:
    """Reads a small file of /proc; "" when it is gone or not readable."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return os.read(descriptor, _READ).decode("utf-8", "replace")
    except OSError:
        return ""
    finally:
        os.close(descriptor)


def _fields(text: str) -> dict[str, str]:
    parts = (line.partition(":") for line in text.splitlines())
    return {name: value.strip() for name, colon, value in parts if colon}


def _number(text: str) -> int | None:
    words = text.split()
    return int(words[0]) if words and words[0].isdecimal() else None


def _mask(text: str) -> int:
    try:
        return int(text, 16)
    except ValueError:
        return 0


def _owner(folder: Path) -> int | None:
    """Of the files in the folder: the folder itself is the user's in any case."""
    try:
        return (folder / "status").stat().st_uid
    except OSError:
        return None


def _namespaces(folder: Path) -> dict[str, int]:
    found = {}
    for kind in NAMESPACES:
        try:
            match = _INODE.search(str((folder / "ns" / kind).readlink()))
        except OSError:
            continue
        if match:
            found[kind] = int(match[1])
    return found

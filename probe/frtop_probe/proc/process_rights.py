"""Reads the ids and rights of a process, without waiting for it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from frtop_probe.proc.kernel_files import read_fields, read_text

YAMA: Final = "proc/sys/kernel/yama/ptrace_scope"
NAMESPACES: Final = ("pid", "mnt", "net", "user", "ipc")
_INODE: Final = re.compile(r"\[(\d+)\]")


@dataclass(frozen=True, slots=True)
class ProcessRights:
    """Who a process is and what it may do, from its /proc/PID/status and /proc/PID/ns.

    Attributes:
        uid, gid: real ids; None where unknown.
        owner: uid of the files in /proc/PID: root's, not the user's, when the process is not
            dumpable.
        effective, permitted: sets of capabilities, one bit each.
        seccomp: 0 none, 1 strict, 2 filter; None where unknown.
        state: letter of the main thread's state.
        tracer: pid of the debugger that traces it; 0 for none.
        namespaces: inodes by kind (pid, mnt, net, user, ipc); those not readable are missing.
    """

    pid: int
    uid: int | None = None
    gid: int | None = None
    owner: int | None = None
    effective: int = 0
    permitted: int = 0
    seccomp: int | None = None
    no_new_privileges: bool = False
    state: str = ""
    tracer: int = 0
    namespaces: Mapping[str, int] = field(default_factory=dict)


def read_rights(pid: int | str, root: Path = Path("/")) -> ProcessRights:
    """Reads one process; "self" is us. If the process is gone, all fields are unknown."""
    folder = root / "proc" / str(pid)
    fields = read_fields(folder / "status")
    return ProcessRights(
        pid=_number(fields.get("Pid", "")) or (pid if isinstance(pid, int) else 0),
        uid=_number(fields.get("Uid", "")),
        gid=_number(fields.get("Gid", "")),
        owner=_owner(folder),
        effective=_mask(fields.get("CapEff", "")),
        permitted=_mask(fields.get("CapPrm", "")),
        seccomp=_number(fields.get("Seccomp", "")),
        no_new_privileges=fields.get("NoNewPrivs") == "1",
        state=fields.get("State", "")[:1],
        tracer=_number(fields.get("TracerPid", "")) or 0,
        namespaces=_namespaces(folder),
    )


def read_yama(root: Path = Path("/")) -> str:
    """Reads kernel.yama.ptrace_scope; "" where the kernel has no Yama."""
    return read_text(root / YAMA).strip()


def _number(text: str) -> int | None:
    words = text.split()
    return int(words[0]) if words and words[0].isdecimal() else None


def _mask(text: str) -> int:
    try:
        return int(text, 16)
    except ValueError:
        return 0


def _owner(folder: Path) -> int | None:
    """Returns the owner of files in the folder; the folder itself always belongs to the user."""
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

"""Why the kernel refuses to let us trace a process, and which setting causes it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from frtop_probe.procfs import processes

_CAP_SYS_PTRACE: Final = 19
YAMA: Final = "proc/sys/kernel/yama/ptrace_scope"


@dataclass(frozen=True, slots=True)
class _Status:
    """Real uid (None if unknown) and effective capabilities of a process."""

    uid: int | None
    capabilities: int


def explain(pid: int, root: Path = Path("/"), our_uid: int | None = None) -> str:
    """The likeliest cause, and what to do about it, in one sentence.

    The checks follow the kernel's order: user, dumpable, Yama, container.
    """
    ours = os.geteuid() if our_uid is None else our_uid
    theirs = _status(root, str(pid))
    me = _status(root, "self")
    may_trace = bool(me.capabilities >> _CAP_SYS_PTRACE & 1)
    if theirs.uid is not None and theirs.uid != ours and not may_trace:
        return (
            f"process {pid} belongs to uid {theirs.uid}, the agent runs as uid {ours}: "
            "start the agent as that user (`frtop agent`), or as root"
        )
    if theirs.uid == ours and _owner(root, pid) != ours and not may_trace:
        return (
            f"process {pid} cannot be traced (dumpable=0: it changed its user or "
            "privileges, or disabled tracing): run the agent as root"
        )
    scope = (processes.read_file(str(root / YAMA)) or "").strip()
    if scope == "3":
        return f"/{YAMA} is 3: nobody may trace until this host is rebooted with another value"
    if scope in ("1", "2") and not may_trace:
        return (
            f"/{YAMA} is {scope}: only {'parents' if scope == '1' else 'administrators'} may "
            "trace a process; `sudo sysctl kernel.yama.ptrace_scope=0`, or run the agent as root"
        )
    if not may_trace:
        return (
            "the container denies tracing (no CAP_SYS_PTRACE): start it with "
            "`--cap-add=SYS_PTRACE`, or run the agent outside of it"
        )
    return (
        f"the kernel refused to trace process {pid}, although we have CAP_SYS_PTRACE: a "
        "seccomp profile or a security module (SELinux, AppArmor) of this container or host "
        "denies process_vm_readv"
    )


def _status(root: Path, name: str) -> _Status:
    uid = None
    capabilities = 0
    for line in (processes.read_file(f"{root / 'proc'}/{name}/status") or "").splitlines():
        field, _, value = line.partition(":")
        words = value.split()
        if field == "Uid" and words and words[0].isdecimal():
            uid = int(words[0])
        elif field == "CapEff" and words:
            capabilities = int(words[0], 16)
    return _Status(uid, capabilities)


def _owner(root: Path, pid: int) -> int | None:
    """Owner of /proc/PID: root instead of the process's user when the process is not dumpable."""
    try:
        return (root / "proc" / str(pid)).stat().st_uid
    except OSError:
        return None

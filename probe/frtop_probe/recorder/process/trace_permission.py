"""Lets this host's agent read the rank, if Yama requires the rank's permission.

With kernel.yama.ptrace_scope=1, a process can be read only by its ancestors, and by the one process
that it named with `PR_SET_PTRACER` and that one's descendants (the kernel's
Documentation/admin-guide/LSM/Yama.rst): py-spy and our reader are children of the agent.

A process can name only one. Transports that read the memory of other ranks (UCX's CMA) name
everybody (`PR_SET_PTRACER_ANY`), and would fail if that were replaced. The kernel does not show the
current choice, so the rank never names a process on its own: the agent asks, once, after a refusal.
"""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from frtop_probe.ring.folder import AgentFiles

ASK: Final = "trace"
SWITCH: Final = "FRTOP_PTRACER"
SCOPE: Final = Path("/proc/sys/kernel/yama/ptrace_scope")
RESTRICTED: Final = "1"
"""With 0 no permission is needed; with 2 and 3 the rank cannot give it."""
_PR_SET_PTRACER: Final = 0x59616D61
_MAX_CARD: Final = 64 * 1024


def respond(home: Path, request: Mapping[str, Any]) -> tuple[dict[str, Any], bytes]:
    """Answers an agent that asks for permission.

    Args:
        home: the folder with the agent's files.
        request: from the socket; its `peer` is the asking pid, as reported by the kernel.
    """
    why = allow(home, request.get("peer"))
    return {"error": "failed" if why else "", "help": why}, b""


def allow(home: Path, peer: object) -> str:
    """Lets the agent `peer` (a pid) and its children read this process; returns "", or why not.

    Forked children do not inherit the permission, and it ends with the agent.
    """
    if os.environ.get(SWITCH) == "0":
        return f"{SWITCH}=0 in its environment"
    try:
        scope = SCOPE.read_text().strip()
    except OSError:
        scope = ""
    if scope != RESTRICTED:
        return f"kernel.yama.ptrace_scope is {scope or 'missing'}: the rank has no say"
    # 0 means that the asking process is in another pid namespace.
    if type(peer) is not int or peer <= 1 or peer != _announced_agent(home):
        return "the asking process is not the agent of this host and folder"
    number = _prctl(_PR_SET_PTRACER, peer)
    return f"the kernel refused it: {os.strerror(number)}" if number else ""


def _announced_agent(home: Path) -> int:
    """The pid of the agent that serves this pid namespace and folder; 0 if there is none."""
    try:
        files = AgentFiles.here(home)
        if not files.lives:
            return 0
        with files.card.open(encoding="utf-8") as card:
            pid = json.loads(card.read(_MAX_CARD))["pid"]
    except (OSError, ValueError, TypeError, LookupError, RecursionError):
        return 0
    return pid if type(pid) is int else 0


def _prctl(option: int, value: int) -> int:
    """Calls `prctl`; returns its error number, 0 on success."""
    libc = ctypes.CDLL(None, use_errno=True)
    zero = ctypes.c_ulong(0)
    failed = libc.prctl(option, ctypes.c_ulong(value), zero, zero, zero)
    return ctypes.get_errno() if failed else 0

"""Ends the ranks of a job for `--kill`: only processes of this host and user.

A pid alone is not enough: another process may have it by now. Each process is opened, then its
start and user are checked, then the opened process gets the signal.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from frtop_probe.agent import announcement
from frtop_probe.proc import processes
from frtop_probe.ring.folder import FolderError, folder
from frtop_probe.ring.pid_namespace import PidNamespace
from frtop_tui.diagnosis.model import Frame
from frtop_tui.job.naming import folded

GRACE_S: Final = 15.0
"""Time between SIGTERM and SIGKILL, for a checkpoint or exit handlers that hang."""
_ENDED: Final = frozenset("ZX")


class RankProcess(NamedTuple):
    """A rank's process, as its agent identified it."""

    rank: int
    pid: int
    start_ticks: int


class JobEnd(NamedTuple):
    """The ranks to end, and why other ranks are not ended; "" if all are."""

    ranks: tuple[RankProcess, ...]
    problem: str = ""


def plan_end(frame: Frame, local: Collection[str]) -> JobEnd:
    """Chooses the ranks that this user's own agents report.

    Another user's agent, even if we trust it, could name any process of ours, or add to our job a
    rank that has died.

    `local` are names of this host, as `local_names` gives them.
    """
    keys = {host.name: host.agent_key for host in frame.hosts}
    if foreign := [one.rank for one in frame.ranks.values() if keys.get(one.host) == "other"]:
        return JobEnd((), f"another user's agent reports {folded(foreign)}: no rank is ended")
    here, elsewhere, unproven = [], [], []
    for view in frame.ranks.values():
        if view.exit_info is not None:
            continue
        if view.host.partition(" ")[0].partition(":")[0] not in local:
            elsewhere.append(view.rank)
        elif keys.get(view.host) != "own":
            unproven.append(view.rank)
        else:
            one = view.identity
            here.append(RankProcess(view.rank, one.pid, one.start_ticks))
    reasons = (
        (elsewhere, "run on other hosts: not ended from here"),
        (unproven, "have no agent that has proved to have our key: not ended"),
    )
    problems = [f"{folded(ranks)} {reason}" for ranks, reason in reasons if ranks]
    return JobEnd(tuple(here), "; ".join(problems))


def local_names() -> frozenset[str]:
    """The names of agents on this host and in this pid namespace."""
    try:
        found = announcement.find_agents(folder())
        here = PidNamespace.here().inode
    except (FolderError, OSError):
        return frozenset()
    return frozenset(agent.host for agent in found if agent.pid_namespace == here)


def end_ranks(ranks: Sequence[RankProcess], grace_s: float = GRACE_S) -> str:
    """Sends SIGTERM, then SIGKILL to those that still run; returns why some did not end, or ""."""
    opened: dict[RankProcess, int] = {}
    problems = []
    try:
        for one in ranks:
            problem = _open(one, opened)
            problems += [problem] if problem else []
        for number, wait_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, 2.0)):
            for one, descriptor in opened.items():
                if _lives(one):
                    with suppress(OSError):  # it has just ended
                        signal.pidfd_send_signal(descriptor, number)
            until = time.monotonic() + wait_s
            while any(map(_lives, opened)) and time.monotonic() < until:
                time.sleep(0.05)
    finally:
        for descriptor in opened.values():
            os.close(descriptor)
    problems += [f"rank {one.rank} (pid {one.pid}) does not end" for one in opened if _lives(one)]
    return "; ".join(problems)


def _open(one: RankProcess, opened: dict[RankProcess, int]) -> str:
    """Why the process will not be ended, "" if it was opened or has ended by itself."""
    try:
        descriptor = os.pidfd_open(one.pid)
    except ProcessLookupError:
        return ""
    except OSError as error:
        return f"rank {one.rank} (pid {one.pid}): {error.strerror}"
    problem = ""
    stat = processes.read_stat(one.pid)
    if stat is None or stat.start_ticks != one.start_ticks:
        problem = f"pid {one.pid} is no longer rank {one.rank}: not ended"
    elif _uid(one.pid) != os.getuid():
        problem = f"rank {one.rank} (pid {one.pid}) is another user's: not ended"
    if problem:
        os.close(descriptor)
    else:
        opened[one] = descriptor
    return problem


def _uid(pid: int) -> int | None:
    with suppress(OSError):
        return os.stat(f"/proc/{pid}").st_uid  # noqa: PTH116 - no Path needed
    return None


def _lives(one: RankProcess) -> bool:
    stat = processes.read_stat(one.pid)
    return stat is not None and stat.start_ticks == one.start_ticks and stat.state not in _ENDED

"""What is said of the ranks of other users: that they are there, and how they are looked at."""

from __future__ import annotations

import os
from typing import Final

from frtop_probe.proc.child_process import AS_USER
from frtop_probe.unprepared.discovery.facts import LeftAlone

ROOT: Final = "root"


def notes_of(others: tuple[LeftAlone, ...], *, through_shell: bool = False) -> list[str]:
    """A sentence per user who has ranks here, with the next step.

    Args:
        others: users, and what they have here.
        through_shell: the operator has reached this host through a shell.
    """
    as_root = os.geteuid() == 0 or AS_USER in os.environ
    return [
        f"{one.text}; {advice(one.user, as_root=as_root, through_shell=through_shell)}"
        for one in others
        if one.ranks
    ]


def advice(user: str, *, as_root: bool, through_shell: bool = False) -> str:
    """How the ranks of `user` are looked at, by root or by somebody else."""
    option = "" if user == ROOT else f" --user {user}"
    if not as_root:
        return (
            f"{user} can admit you: `frtop key admit`, with what `frtop key` prints here;"
            f" root can look: `frtop{option}`"
        )
    if through_shell:
        return f"the same command {f'with{option}' if option else 'without --user'} shows them"
    return f"frtop{option}"

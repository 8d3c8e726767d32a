"""What is said of the ranks of other users: that they are there, and whom to ask for what.

Nobody but their user, or root on purpose, decides who sees them. So the sentence names both ways.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

from frtop_probe.agent import public_card
from frtop_probe.agent.public_card import PublicCard
from frtop_probe.doctor.process_rights import read_rights
from frtop_probe.doctor.tracing import is_contained
from frtop_probe.outside.discovery.facts import LeftAlone

HOST_KEY: Final = "/etc/frtop/key"


def notes_of(
    others: tuple[LeftAlone, ...], card: Callable[[], PublicCard | None] = public_card.read
) -> list[str]:
    """A sentence per user who has ranks here, with the next step."""
    seen = [one for one in others if one.ranks]
    if not seen:
        return []
    known = card()
    as_root = os.geteuid() == 0
    contained = is_contained(read_rights("self"))
    return [
        f"{one.text}; {advice(one.user, known, as_root=as_root, contained=contained)}"
        for one in seen
    ]


def advice(user: str, card: PublicCard | None, *, as_root: bool, contained: bool = False) -> str:
    """Whom to ask for what, to see the ranks of `user`.

    Args:
        user: whose ranks they are.
        card: of root's agent of all users, None where none runs.
        as_root: whether root asks.
        contained: whether in a container, where frtop is seldom installed.
    """
    if card is not None and as_root:
        return f"root's agent shows them: FRTOP_KEY_FILE={HOST_KEY} frtop {card.connect}"
    if card is not None:
        return (
            "root's agent shows them to the keys that root lists (`frtop key` prints yours):"
            f" frtop {card.connect}"
        )
    if as_root and contained:
        return (
            f"reach the container as {user}: --via 'docker exec -u {user} -i {{host}} sh';"
            " or serve all users: `frtop agent --all-users`"
        )
    if as_root:
        return f"runuser -u {user} -- frtop jobs; or serve all users: `frtop agent --all-users`"
    return (
        f"{user} can admit you: `frtop key admit`, with what `frtop key` prints here;"
        " root can serve all users: `frtop agent --all-users`"
    )

"""An agent that accepts connections and does not answer: why, as far as it can be told from here.

On its own host the agent's card names its process, and /proc says what that does. From another
host a stopped agent, one that hangs, and one without CPU time look the same.
"""

from __future__ import annotations

import errno
from typing import Final

from frtop_probe.agent.announcement import Announcement, find_agents
from frtop_probe.proc import pid_stat
from frtop_probe.ring.folder import FolderError, folder
from frtop_probe.ring.pid_namespace import PidNamespace
from frtop_tui.connect.endpoints import Endpoint, is_loopback
from frtop_tui.errors import FrtopError, Unreachable

_STOPPED: Final = "T"
_TRACED: Final = "t"
_ENDED_BY_PEER: Final = frozenset((errno.EPIPE, errno.ECONNRESET, errno.ECONNABORTED))


def timed_out(error_number: int) -> bool:
    """Whether a handshake failed because nobody answered; else the other side has ended it.

    Args:
        error_number: the value of libzmq's event, the errno of its last read or write.
    """
    return error_number not in _ENDED_BY_PEER


def stopped(endpoint: Endpoint) -> FrtopError | None:
    """The error if this is an agent of this host whose process stands still, else None."""
    card = _card(endpoint)
    state = _state(card)
    if card is None or state not in (_STOPPED, _TRACED):
        return None
    if state == _STOPPED:
        return Unreachable(
            f"the agent on {endpoint.host} (pid {card.pid}) is stopped by a signal",
            f"let it run on: kill -CONT {card.pid}",
        )
    return Unreachable(
        f"the agent on {endpoint.host} (pid {card.pid}) is held by a debugger or tracer",
        f"end that program: `grep TracerPid /proc/{card.pid}/status` prints its pid",
    )


def unanswered(endpoint: Endpoint) -> FrtopError:
    """The error for an agent that has accepted a connection and not answered it in time."""
    error = stopped(endpoint)
    if error is not None:
        return error
    card = _card(endpoint)
    if card is None:
        return Unreachable(
            f"the agent on {endpoint.host} accepts and does not answer: it hangs or is stopped",
            f"`frtop diagnose` on that host tells which, and what to type; who listens there:"
            f" `ss -ltnp 'sport = :{endpoint.ask}'`",
        )
    return Unreachable(
        f"the agent on {endpoint.host} (pid {card.pid}, state {_state(card) or 'unknown'}) accepts"
        " and does not answer: it hangs, or gets no CPU time",
        f"wait, or end it: kill -9 {card.pid}; the ranks run on, and another one is started",
    )


def _card(endpoint: Endpoint) -> Announcement | None:
    """The card of the agent that listens there, if that is one of ours on this host."""
    try:
        cards = find_agents(folder())
    except FolderError:
        return None
    here = PidNamespace.here().inode
    local = is_loopback(endpoint.address)
    for card in cards:
        if not card.in_reach or card.ask != endpoint.ask or card.pid_namespace not in (0, here):
            continue
        if local or card.public_key.encode() == endpoint.key or card.address == endpoint.address:
            return card
    return None


def _state(card: Announcement | None) -> str:
    """The letter of its state in /proc, "" if unknown."""
    found = pid_stat.read(f"/proc/{card.pid}") if card is not None else None
    return found.state if found is not None else ""

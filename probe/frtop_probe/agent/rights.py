"""Who may act: the rights of operators, looked up at every request.

The declaration of a request says whether it acts. Anyone who reaches an agent through a shell is
the agent's user: `Rights`. Over sockets, rights belong to keys: `key_rights` reads the lists.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final, Literal

from frtop_probe.proc.child_process import AS_USER

Right = Literal["read", "act"]
MAX_READ_ONLY_CONNECTIONS: Final = 1024
"""Read-only connections remembered per key; the oldest are dropped. An operator can displace
only its own connections, and it chose to give up their right."""


@dataclass(frozen=True, slots=True)
class Operator:
    """The sender of a request: a connection, and the key proved in its handshake.

    On a pipe there is one connection and no key: both are "".
    """

    connection: bytes
    key: bytes


class Rights:
    """Every operator may act, unless the agent is `read_only` or the operator gave up the right."""

    def __init__(self, *, read_only: bool = False) -> None:
        self._read_only = read_only
        self._gave_up: dict[bytes, dict[bytes, None]] = {}
        self.notes: tuple[str, ...] = ()

    async def right(self, key: bytes) -> Right | None:  # noqa: ARG002 - there is no list
        """Returns the current right of a key; None if it is not admitted."""
        return "act"

    def is_owner(self, key: bytes) -> bool:  # noqa: ARG002 - likewise
        """Whether a key belongs to the owner of the jobs."""
        return True

    def key_text(self, key: bytes) -> str:  # noqa: ARG002 - likewise
        """Returns a key as people write it; "" if there is none."""
        return ""

    def name(self, key: bytes) -> str:  # noqa: ARG002 - likewise
        """Returns who has this key, for the audit trail."""
        return f"{'root' if AS_USER in os.environ else 'its user'} through a shell"

    def take_notes_changed(self) -> bool:
        """Whether `notes` have changed since the last call."""
        return False

    def give_up(self, operator: Operator) -> None:
        """Makes this connection read-only from now on; this cannot be undone.

        Clients choose connection ids, so an id counts only together with its key.
        """
        connections = self._gave_up.setdefault(operator.key, {})
        connections[operator.connection] = None
        if len(connections) > MAX_READ_ONLY_CONNECTIONS:
            del connections[next(iter(connections))]

    def why_not_act(self, operator: Operator, right: Right | None, host: str) -> str:
        """Returns why this operator may not act, and what to do about it; "" when it may."""
        command = f"`frtop key admit {self.key_text(operator.key)}`"
        if right is None:
            return f"this agent no longer admits your key; the jobs' owner can admit it: {command}"
        if self._read_only:
            return (
                f"the agent on {host} is read-only: nobody may ask its ranks for anything; "
                "to change that, start it without --read-only and FRTOP_READ_ONLY"
            )
        if operator.connection in self._gave_up.get(operator.key, ()):
            return "this screen may only read: it was started with --read-only; start it without"
        if right == "read":
            return (
                "your key may only read, not ask the ranks for anything; "
                f"the jobs' owner can allow more: {command}"
            )
        return ""

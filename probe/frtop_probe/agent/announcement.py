"""Where the agent of a folder can be reached: written by it, read by screens on its host.

The lock tells a living agent from the leftovers of one that was killed: the kernel frees
it whatever happens. Standard library only.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from frtop_probe.ring.folder import AGENT_CARD, AGENT_LOCK, agent_lives

_MAX_CARD: Final = 64 * 1024
_LOCK_TRIES: Final = 10
_LOCK_PAUSE: Final = 0.03


@dataclass(frozen=True, slots=True)
class Announcement:
    """One agent. `address` is for this host; `public_key` is CURVE in z85."""

    pid: int
    host: str
    address: str
    pub: int
    ask: int
    public_key: str
    instance: str
    version: str
    started_wall_ns: int


def read(folder: Path) -> Announcement | None:
    """The agent that lives in `folder`; None when there is none, or not yet."""
    if not agent_lives(folder):
        return None
    try:
        with (folder / AGENT_CARD).open(encoding="utf-8") as card:
            content = json.loads(card.read(_MAX_CARD))
        return Announcement(
            pid=int(content["pid"]),
            host=str(content["host"]),
            address=str(content["address"]),
            pub=int(content["pub"]),
            ask=int(content["ask"]),
            public_key=str(content["public_key"]),
            instance=str(content["instance"]),
            version=str(content["version"]),
            started_wall_ns=int(content["started_wall_ns"]),
        )
    except (OSError, ValueError, TypeError, KeyError):
        return None


def write(folder: Path, announcement: Announcement) -> None:
    """Puts the card in place in one step, for the user's eyes only."""
    draft = folder / f".{AGENT_CARD}.{secrets.token_hex(4)}"
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, (json.dumps(asdict(announcement), indent=1) + "\n").encode())
    finally:
        os.close(descriptor)
    draft.replace(folder / AGENT_CARD)


class Lock:
    """Held by the one agent of a folder, from before its sockets until after its last act."""

    def __init__(self, folder: Path, descriptor: int) -> None:
        self._folder = folder
        self._descriptor = descriptor

    @classmethod
    def take(cls, folder: Path) -> Lock | None:
        """The lock, or None when another agent lives there.

        Raises:
            OSError: the lock file cannot be made.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(folder / AGENT_LOCK, flags, 0o600)
        for _ in range(_LOCK_TRIES):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                time.sleep(_LOCK_PAUSE)  # perhaps only somebody who asks `agent_lives`
            else:
                return cls(folder, descriptor)
        os.close(descriptor)
        return None

    def remove_card(self) -> None:
        """Takes away our card, or one left over.

        Not in a folder that was made anew: what lies there is of the agent that holds the
        lock there.
        """
        with suppress(OSError):
            if os.path.samestat(os.fstat(self._descriptor), (self._folder / AGENT_LOCK).lstat()):
                (self._folder / AGENT_CARD).unlink()

    def release(self) -> None:
        """Lets the next one in. The file stays: removing it would let two hold it."""
        os.close(self._descriptor)

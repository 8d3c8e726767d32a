"""Where the agents of a folder can be reached: written by them, read by screens on the host.

The lock tells a living agent from the leftovers of one that was killed: the kernel frees
it whatever happens, and answers across containers. Standard library only.
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

from frtop_probe.ring.folder import AGENT_FILE, AgentFiles
from frtop_probe.ring.pid_namespace import PidNamespace

MAX_AGENTS: Final = 256
"""Of so many containers in one folder; a card costs a reader some microseconds."""
_MAX_CARD: Final = 64 * 1024
_LOCK_TRIES: Final = 10
_LOCK_PAUSE: Final = 0.03


@dataclass(frozen=True, slots=True)
class Announcement:
    """One agent. `address` is for its own network; `public_key` is CURVE in z85.

    `host` is what its container calls itself. The namespaces are inodes, 0 for unknown.
    """

    pid: int
    host: str
    address: str
    pub: int
    ask: int
    public_key: str
    instance: str
    version: str
    started_wall_ns: int
    pid_namespace: int = 0
    net_namespace: int = 0

    @property
    def in_reach(self) -> bool:
        """Whether `address` leads to it from here: not into a network of its own."""
        return self.net_namespace in (0, network())


def network() -> int:
    """The inode of this process's network namespace; 0 for unknown."""
    try:
        return Path("/proc/self/ns/net").stat().st_ino
    except OSError:
        return 0


def living(folder: Path) -> tuple[Announcement, ...]:
    """All agents that live in `folder`: that of this process's own space first, if any."""
    with suppress(OSError):
        here = PidNamespace.here().name
        names = (AGENT_FILE.fullmatch(path.name) for path in folder.iterdir())
        spaces = {name[1] for name in names if name is not None}
        ordered = sorted(spaces, key=lambda space: (space != here, space))
        found = (of(AgentFiles(folder, space)) for space in ordered[:MAX_AGENTS])
        return tuple(agent for agent in found if agent is not None)
    return ()


def read(folder: Path) -> Announcement | None:
    """The nearest agent that lives in `folder`; None when there is none, or not yet."""
    return next(iter(living(folder)), None)


def of(files: AgentFiles) -> Announcement | None:
    """The agent of one space; None when it does not live, or has not written its card."""
    if not files.lives:
        return None
    try:
        with files.card.open(encoding="utf-8") as card:
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
            pid_namespace=int(content.get("pid_namespace", 0)),
            net_namespace=int(content.get("net_namespace", 0)),
        )
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def write(files: AgentFiles, announcement: Announcement) -> None:
    """Puts the card in place in one step, for the user's eyes only."""
    draft = files.card.with_suffix(f".{secrets.token_hex(4)}.draft")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, (json.dumps(asdict(announcement), indent=1) + "\n").encode())
    except OSError:
        draft.unlink()
        raise
    finally:
        os.close(descriptor)
    draft.replace(files.card)
    with suppress(OSError):
        os.truncate(files.spawn, 0)  # attempts to start one have failed no longer


class Lock:
    """Held by the one agent of a space, from before its sockets until after its last act.

    Whoever takes it looks whether what it took still lies in the folder; so its holder
    may remove the file, and nobody is fooled by a folder that was cleared.
    """

    def __init__(self, files: AgentFiles, descriptor: int) -> None:
        self.files = files
        self._descriptor = descriptor

    @classmethod
    def take(cls, files: AgentFiles, tries: int = _LOCK_TRIES) -> Lock | None:
        """The lock, or None when another agent lives there.

        Raises:
            OSError: the lock file cannot be made, or this file system has no locks.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        for turn in range(tries):
            if turn:
                time.sleep(_LOCK_PAUSE)  # perhaps only somebody who asks whether it is held
            descriptor = os.open(files.lock, flags, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                lock = cls(files, descriptor)
                if lock.in_place:
                    return lock
                lock.let_go()  # removed by its last holder just now
            except BlockingIOError:
                os.close(descriptor)
            except OSError as error:
                os.close(descriptor)
                error.filename = error.filename or str(files.lock)
                raise
        return None

    @property
    def in_place(self) -> bool:
        """Whether the file that we hold is the one that others find."""
        try:
            return os.path.samestat(os.fstat(self._descriptor), self.files.lock.lstat())
        except OSError:
            return False

    def retake(self) -> bool:
        """Takes the lock anew in a folder that was made anew; False if another one has it.

        Raises:
            OSError: as `take`.
        """
        fresh = self.take(self.files, tries=1)
        if fresh is None:
            return False
        os.close(self._descriptor)
        self._descriptor = fresh._descriptor  # noqa: SLF001 - one of us
        return True

    def clear(self) -> None:
        """Takes away the card and what else was left, by us or by one that was killed.

        Not in a folder that was made anew: what lies there is of the agent that holds the
        lock there. What tells of failures stays, for whoever looks for their reason.
        """
        if not self.in_place:
            return
        with suppress(OSError):
            self.files.card.unlink()
        for path in (self.files.spawn, self.files.log):
            with suppress(OSError):
                if not path.lstat().st_size:
                    path.unlink()

    def release(self) -> None:
        """Lets the next one in, and leaves nothing behind."""
        if self.in_place:
            with suppress(OSError):
                self.files.lock.unlink()
        self.let_go()

    def let_go(self) -> None:
        """Lets the next one in; the file stays."""
        os.close(self._descriptor)

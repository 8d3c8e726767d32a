"""Writes the card of the agent of all users, and holds the lock of which a host has one."""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import suppress
from dataclasses import asdict
from typing import Final

from frtop_probe import atomic_file
from frtop_probe.agent.public_card import NAME, PublicCard, folder

_LOCK: Final = "all-users.lock"


class InUse(Exception):
    """Another agent of all users runs on this host."""


def take_lock() -> int:
    """Takes the lock of this host's agent of all users; returns its descriptor.

    Raises:
        InUse: another agent has it.
        OSError: the folder cannot be used.
    """
    where = folder()
    where.mkdir(mode=0o755, parents=True, exist_ok=True)
    where.chmod(0o755)  # whatever the umask
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(where / _LOCK, flags, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise InUse from error
    return descriptor


def write(card: PublicCard) -> None:
    """Writes the card.

    Raises:
        OSError: it cannot be written.
    """
    path = folder() / NAME
    atomic_file.write(path, (json.dumps(asdict(card)) + "\n").encode())
    path.chmod(0o644)


def remove() -> None:
    with suppress(OSError):
        (folder() / NAME).unlink()

"""The file in which the agent of all users says to everybody on its host that it is there.

It is root's, in a folder of root's, and readable by all. So who reads it may believe it: root could
do anything on this host anyway.
"""

from __future__ import annotations

import ipaddress
import json
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

FOLDER: Final = "FRTOP_RUN_DIR"
"""Names another folder than `/run/frtop`, for tests."""
DEFAULT: Final = Path("/run/frtop")
NAME: Final = "all-users.json"
_MAX: Final = 4096


@dataclass(frozen=True, slots=True)
class PublicCard:
    """How it is reached from this host, and its public key as people write it.

    `port` is that of updates; requests use the next one.
    """

    pid: int
    address: str
    port: int
    public: str

    @property
    def connect(self) -> str:
        """What to type on this host."""
        address = f"[{self.address}]" if ":" in self.address else self.address
        return f"--connect {address}:{self.port}"


def folder() -> Path:
    return Path(os.environ.get(FOLDER) or DEFAULT)


def read() -> PublicCard | None:
    """The card of a running agent of all users; None if there is none that may be believed."""
    path = folder() / NAME
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != 0 or found.st_mode & 0o022:
            return None
        content = json.loads(os.read(descriptor, _MAX))
        address = str(ipaddress.ip_address(content["address"]))
        public = str(content["public"])[:80]
        card = PublicCard(int(content["pid"]), address, int(content["port"]), public)
        return card if Path(f"/proc/{card.pid}").exists() else None
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None
    finally:
        os.close(descriptor)

"""How to reach the agents of a folder: each writes a card, which screens on the host read.

The agent's lock distinguishes a running agent from the files of a killed one: the kernel releases
the lock however the agent ends, and shows it across containers. Standard library only.
"""

from __future__ import annotations

import json
import os
import secrets
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from importlib import metadata
from pathlib import Path
from typing import Final

from frtop_probe import atomic_file
from frtop_probe.ring.folder import AGENT_FILE, AgentFiles
from frtop_probe.ring.pid_namespace import PidNamespace

MAX_AGENTS: Final = 256
"""Agents (one per container) that a reader looks for in one folder; a card takes a few µs."""
_MAX_CARD: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class Announcement:
    """The card of one agent.

    `address` is valid in the agent's network namespace, `host` is its container's host name.
    `pub` is the port for updates, `ask` the port for requests. `public_key` is CURVE in z85. The
    namespaces are inodes, 0 if unknown.
    """

    pid: int
    host: str
    address: str
    pub: int
    ask: int
    public_key: str
    instance: str
    version: str
    pid_namespace: int = 0
    net_namespace: int = 0

    @property
    def in_reach(self) -> bool:
        """Whether `address` leads to the agent from this process's network namespace."""
        return self.net_namespace in (0, network_namespace())


def own_version() -> str:
    """The version of this frtop; "" when it runs from a checkout that is not installed."""
    try:
        return metadata.version("frtop")
    except metadata.PackageNotFoundError:
        return ""


def network_namespace() -> int:
    """The inode of this process's network namespace; 0 if unknown."""
    try:
        return Path("/proc/self/ns/net").stat().st_ino
    except OSError:
        return 0


def find_agents(folder: Path) -> tuple[Announcement, ...]:
    """All running agents of `folder`; the one in this process's pid namespace comes first."""
    with suppress(OSError):
        here = PidNamespace.here().name
        names = (AGENT_FILE.fullmatch(path.name) for path in folder.iterdir())
        spaces = {name[1] for name in names if name is not None}
        ordered = sorted(spaces, key=lambda space: (space != here, space))
        found = (read_card(AgentFiles(folder, space)) for space in ordered[:MAX_AGENTS])
        return tuple(agent for agent in found if agent is not None)
    return ()


def find_agent(folder: Path) -> Announcement | None:
    """The first of `find_agents`; None when no agent runs, or none has written its card."""
    return next(iter(find_agents(folder)), None)


def read_card(files: AgentFiles) -> Announcement | None:
    """The card of one agent; None when it does not run, or has not written its card.

    An agent that starts where another was killed holds the lock before it removes that one's card.
    """
    if not files.lives:
        return None
    try:
        with files.card.open(encoding="utf-8") as card:
            content = json.loads(card.read(_MAX_CARD))
        kinds = {"int": int, "str": str}
        found = Announcement(
            **{
                one.name: kinds[str(one.type)](content[one.name])
                for one in fields(Announcement)
                if one.name in content  # an older agent has only those without a default
            }
        )
    except (OSError, ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None
    is_here = found.pid_namespace == PidNamespace.here().inode
    return found if not is_here or Path(f"/proc/{found.pid}").exists() else None


def write_card(files: AgentFiles, announcement: Announcement) -> None:
    """Writes an agent's card in one step.

    Raises:
        OSError: it cannot be written.
    """
    content = (json.dumps(asdict(announcement), indent=1) + "\n").encode()
    # `stale_files` removes such drafts after their agent was killed.
    draft = files.card.with_suffix(f".{secrets.token_hex(4)}.draft")
    atomic_file.write(files.card, content, draft=draft)
    with suppress(OSError):
        os.truncate(files.spawn, 0)  # earlier failures to start an agent no longer matter

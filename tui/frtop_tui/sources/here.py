"""This host's agents, found by the folder they share: one, or one of each container."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from frtop_probe.agent import announcement
from frtop_probe.agent.announcement import Announcement
from frtop_probe.ring.folder import FolderError, folder
from frtop_tui.errors import NoAgent
from frtop_tui.sources.places import Place

LOOK_AGAIN_NS: Final = 500_000_000


@dataclass(frozen=True, slots=True)
class Found:
    """What is new: agents to connect to, the names of places they take the place of."""

    places: tuple[Place, ...] = ()
    unreachable: tuple[tuple[str, str], ...] = ()  # name of a place, why not


class Here:
    """Follows agents of this host that come, go and are started anew.

    Each has a name of its own: that of its host, and the port too where two are called
    alike. One that went away keeps its name until another of that host comes.
    """

    def __init__(
        self,
        taken: Sequence[str],
        living: Callable[[Path], Sequence[Announcement]] = announcement.find_agents,
    ) -> None:
        """Args: taken: names that the operator gave to hosts; living: who lives in a folder."""
        self._taken = frozenset(taken)
        self._living = living
        self._known: dict[str, Announcement] = {}
        self._looked_at: int | None = None
        self.problem = ""
        """Why there is nobody here, with the next step."""

    def look(self, now: int) -> Found:
        """Looks into the folder, not too often."""
        if self._looked_at is not None and now - self._looked_at < LOOK_AGAIN_NS:
            return Found()
        self._looked_at = now
        try:
            living = self._living(folder())
        except FolderError as error:
            self.problem = str(error)
            return Found()
        self.problem = "" if living or self._known else no_agent().sentence
        instances = {agent.instance for agent in living}
        known = {agent.instance for agent in self._known.values()}
        places: list[Place] = []
        unreachable: list[tuple[str, str]] = []
        for agent in living:
            if agent.instance in known:
                continue
            name = self._name(agent, instances)
            self._known[name] = agent
            if agent.in_reach:
                key = agent.public_key.encode()
                places.append(Place(name, agent.address, agent.pub, agent.ask, key))
            else:
                unreachable.append((name, _elsewhere(agent)))
        return Found(tuple(places), tuple(unreachable))

    def _name(self, agent: Announcement, instances: Iterable[str]) -> str:
        """One that nobody living has."""
        plain = agent.host
        if plain in self._taken:  # it was named as well: two places, one agent
            plain = f"{plain} (local)"
        for name in (plain, f"{plain}:{agent.pub}", f"{plain}:{agent.pub} pid {agent.pid}"):
            holder = self._known.get(name)
            if holder is None or holder.instance not in instances:
                return name
        return f"{plain} {agent.instance}"


def no_agent() -> NoAgent:
    return NoAgent(
        "no agent of frtop runs on this host (no prepared job has run here lately)",
        "start the job with `frtop run -- torchrun ...`, or name its hosts: --connect 'node[0-7]'",
    )


def _elsewhere(agent: Announcement) -> str:
    return (
        f"the agent of container {agent.host} listens in a network of its own; run frtop in "
        f"that container, or name the container's address: --connect ADDRESS:{agent.pub}"
    )

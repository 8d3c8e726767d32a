"""Finds the agents of this host in the folder they share: one, or one per container."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from frtop_probe.agent import announcement
from frtop_probe.agent.announcement import Announcement
from frtop_probe.ring.folder import FolderError, candidates
from frtop_tui.connect.agent_start import absence, keep_agent
from frtop_tui.connect.endpoints import Endpoint
from frtop_tui.job.model import Problem

INTERVAL_NS: Final = 500_000_000


@dataclass(frozen=True, slots=True)
class DiscoveredAgents:
    """Agents found since the last search."""

    endpoints: tuple[Endpoint, ...] = ()
    unreachable: tuple[tuple[str, Problem], ...] = ()  # by host name


class KnownAgents:
    """Agents at known ports, instead of `LocalDiscovery`."""

    problem: Problem | None = None

    def __init__(self, endpoints: Sequence[Endpoint]) -> None:
        self._endpoints = tuple(endpoints)

    def search(self, _now: int) -> DiscoveredAgents:
        """All of them, once."""
        found, self._endpoints = self._endpoints, ()
        return DiscoveredAgents(found)


class LocalDiscovery:
    """Follows agents of this host as they start, end and restart.

    Each gets a unique name: that of its host, plus the port if two names are equal. An agent that
    ended keeps its name until another one of that host starts.
    """

    def __init__(
        self,
        named: Sequence[str],
        running: Callable[[Path], Sequence[Announcement]] = announcement.find_agents,
    ) -> None:
        """`named`: hosts that the operator named; `running` gives the agents of a folder."""
        self._named = frozenset(named)
        self._running = running
        self._known: dict[str, Announcement] = {}
        self._searched_at: int | None = None
        self.problem: Problem | None = None
        """Why no agent was found."""

    @property
    def found(self) -> bool:
        """Whether an agent of this host has ever announced itself."""
        return bool(self._known)

    def search(self, now: int) -> DiscoveredAgents:
        """Reads the folder, at most twice a second."""
        if self._searched_at is not None and now - self._searched_at < INTERVAL_NS:
            return DiscoveredAgents()
        self._searched_at = now
        try:
            folders = candidates()
            where = folders[0]
            running = tuple(agent for one in folders for agent in self._running(one))
        except FolderError as error:
            self.problem = Problem.parse(str(error))
            return DiscoveredAgents()
        self.problem = None if running or self._known else absence(where)
        if self._known:
            keep_agent(where, running=bool(running))
        instances = {agent.instance for agent in running}
        known = {agent.instance for agent in self._known.values()}
        endpoints: list[Endpoint] = []
        unreachable: list[tuple[str, Problem]] = []
        for agent in running:
            if agent.instance in known:
                continue
            name = self._name(agent, instances)
            self._known[name] = agent
            if agent.in_reach:
                key = agent.public_key.encode()
                endpoints.append(Endpoint(name, agent.address, agent.pub, agent.ask, key))
            else:
                unreachable.append((name, _other_network(agent)))
        return DiscoveredAgents(tuple(endpoints), tuple(unreachable))

    def _name(self, agent: Announcement, instances: Iterable[str]) -> str:
        """The first name that no running agent has."""
        plain = agent.host
        if plain in self._named:  # the operator named it, too: two endpoints, one agent
            plain = f"{plain} (local)"
        for name in (plain, f"{plain}:{agent.pub}", f"{plain}:{agent.pub} pid {agent.pid}"):
            holder = self._known.get(name)
            if holder is None or holder.instance not in instances:
                return name
        return f"{plain} {agent.instance}"


def _other_network(agent: Announcement) -> Problem:
    return Problem(
        f"the agent of container {agent.host} listens in the container's own network",
        "run frtop in that container, or name the container's address:"
        f" --connect ADDRESS:{agent.pub}",
    )

"""Agents in this host's folder: one, several, restarted, out of reach."""

from __future__ import annotations

from pathlib import Path

import pytest

from frtop_probe.agent.announcement import Announcement, network_namespace
from frtop_tui.connect.local_discovery import INTERVAL_NS, LocalDiscovery

KEY = "k" * 40


def agent(host: str, port: int, instance: str, **fields: int) -> Announcement:
    return Announcement(
        pid=port, host=host, address="127.0.0.1", pub=port, ask=port + 1, public_key=KEY,
        instance=instance, version="1", **fields,
    )  # fmt: skip


class Folder:
    def __init__(self, *named: str) -> None:
        self.agents: list[Announcement] = []
        self.local = LocalDiscovery(named, self.running)
        self.now = 0

    def running(self, _: Path) -> list[Announcement]:
        return self.agents

    def search(self, *agents: Announcement) -> list[tuple[str, int]]:
        """Names and ports of new agents."""
        self.agents = list(agents)
        self.now += INTERVAL_NS
        return [(endpoint.host, endpoint.pub) for endpoint in self.local.search(self.now).endpoints]


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRTOP_DIR", str(tmp_path))
    tmp_path.chmod(0o700)


def test_no_agent_and_then_one() -> None:
    folder = Folder()
    assert folder.search() == []
    assert "no agent" in str(folder.local.problem)
    assert folder.search(agent("n", 7677, "a")) == [("n", 7677)]
    assert folder.local.problem is None
    assert folder.search(agent("n", 7677, "a")) == []


def test_an_endpoint_has_the_announced_key() -> None:
    folder = Folder()
    folder.agents = [agent("n", 7677, "a")]
    (endpoint,) = folder.local.search(INTERVAL_NS).endpoints
    assert endpoint.key == KEY.encode()


def test_a_restarted_agent_takes_over_the_name() -> None:
    folder = Folder()
    folder.search(agent("n", 7677, "a"))
    assert folder.search() == []
    assert folder.local.problem is None  # the last known state of the first is still shown
    assert folder.search(agent("n", 7679, "b")) == [("n", 7679)]


def test_containers_with_one_name_get_different_names() -> None:
    folder = Folder()
    both = agent("n", 7677, "a"), agent("n", 7679, "b")
    assert folder.search(*both) == [("n", 7677), ("n:7679", 7679)]
    assert folder.search(both[0], agent("n", 7679, "c")) == [("n:7679", 7679)]


def test_containers_with_two_names_keep_them() -> None:
    folder = Folder()
    assert folder.search(agent("c1", 7677, "a"), agent("c2", 7679, "b")) == [
        ("c1", 7677), ("c2", 7679),
    ]  # fmt: skip


def test_a_host_that_was_named_as_well_is_another_endpoint() -> None:
    assert Folder("n").search(agent("n", 7677, "a")) == [("n (local)", 7677)]


def test_an_agent_in_another_network_comes_with_a_way_to_reach_it() -> None:
    folder = Folder()
    folder.agents = [agent("c1", 7677, "a", net_namespace=network_namespace() + 1)]
    found = folder.local.search(INTERVAL_NS)
    assert not found.endpoints
    ((name, problem),) = found.unreachable
    assert name == "c1"
    assert "--connect ADDRESS:7677" in problem.next

"""Agents of this host's folder: one, several, started anew, out of reach."""

from __future__ import annotations

from pathlib import Path

import pytest

from frtop_probe.agent.announcement import Announcement, network_namespace
from frtop_tui.sources.here import LOOK_AGAIN_NS, Here

KEY = "k" * 40


def agent(host: str, port: int, instance: str, **fields: int) -> Announcement:
    return Announcement(
        pid=port, host=host, address="127.0.0.1", pub=port, ask=port + 1, public_key=KEY,
        instance=instance, version="1", started_wall_ns=0, **fields,
    )  # fmt: skip


class Folder:
    def __init__(self, *taken: str) -> None:
        self.agents: list[Announcement] = []
        self.here = Here(taken, self.living)
        self.now = 0

    def living(self, _: Path) -> list[Announcement]:
        return self.agents

    def look(self, *agents: Announcement) -> list[tuple[str, int]]:
        """Names and ports of what is new."""
        self.agents = list(agents)
        self.now += LOOK_AGAIN_NS
        return [(place.name, place.pub) for place in self.here.look(self.now).places]


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRTOP_DIR", str(tmp_path))
    tmp_path.chmod(0o700)


def test_nobody_then_somebody() -> None:
    folder = Folder()
    assert folder.look() == []
    assert "no agent" in folder.here.problem
    assert folder.look(agent("n", 7677, "a")) == [("n", 7677)]
    assert folder.here.problem == ""
    assert folder.look(agent("n", 7677, "a")) == []


def test_an_agent_proves_itself_with_the_key_it_announced() -> None:
    folder = Folder()
    folder.agents = [agent("n", 7677, "a")]
    (place,) = folder.here.look(LOOK_AGAIN_NS).places
    assert place.key == KEY.encode()


def test_one_that_is_started_anew_takes_the_name_over() -> None:
    folder = Folder()
    folder.look(agent("n", 7677, "a"))
    assert folder.look() == []
    assert folder.here.problem == ""  # what was known of the first is still shown
    assert folder.look(agent("n", 7679, "b")) == [("n", 7679)]


def test_containers_of_one_name_are_told_apart() -> None:
    folder = Folder()
    both = agent("n", 7677, "a"), agent("n", 7679, "b")
    assert folder.look(*both) == [("n", 7677), ("n:7679", 7679)]
    assert folder.look(both[0], agent("n", 7679, "c")) == [("n:7679", 7679)]


def test_containers_of_two_names() -> None:
    folder = Folder()
    assert folder.look(agent("c1", 7677, "a"), agent("c2", 7679, "b")) == [
        ("c1", 7677), ("c2", 7679),
    ]  # fmt: skip


def test_a_host_that_was_named_as_well_is_another_place() -> None:
    assert Folder("n").look(agent("n", 7677, "a")) == [("n (local)", 7677)]


def test_an_agent_in_a_network_of_its_own_is_named_with_a_way_to_it() -> None:
    folder = Folder()
    folder.agents = [agent("c1", 7677, "a", net_namespace=network_namespace() + 1)]
    found = folder.here.look(LOOK_AGAIN_NS)
    assert not found.places
    ((name, problem),) = found.unreachable
    assert name == "c1"
    assert "--connect ADDRESS:7677" in problem

"""Ranks with a recorder, seen through a pipe: their rings are read, and left to their own agent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.agent_host import Host
from frtop_probe import wire
from frtop_tui.files.histories import ops_of
from pipe.far_agent import FarAgent
from waiting import wait_for


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    one = Host(tmp_path, monkeypatch)
    yield one
    one.close()


@pytest.fixture
def far(host: Host) -> Iterator[FarAgent]:
    one = FarAgent(FRTOP_DIR=str(host.folder), FRTOP_UNPREPARED="0")
    yield one
    one.close()


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_rings_are_read_and_left_to_the_agent_that_runs_there(host: Host, far: FarAgent) -> None:
    rank = host.rank("wait")
    operator = host.operator(host.agent())
    (known,) = operator.ranks()
    before = names(host.folder)
    far.start()
    (seen,) = far.request(wire.StateRequest).update.ranks
    assert seen.identity == known.identity
    assert (seen.identity.pid, seen.identity.prepared) == (rank.pid, True)
    assert seen.groups[0].ranks == "0-7"
    assert ops_of(far.request(wire.HistoryRequest, seen.key).history)
    assert names(host.folder) == before
    rank.kill()
    wait_for(
        lambda: far.request(wire.StateRequest).update.ranks[0].exit_info, "its end", pause_s=0.2
    )
    far.leave()
    assert names(host.folder) >= {name for name in before if name.endswith((".ring", ".json"))}
    (still,) = operator.state().ranks
    assert still.identity == known.identity

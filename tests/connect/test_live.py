"""The live source on this host: before, with and after an agent."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from connect.conftest import Start, frame_with
from frtop_probe import keys
from frtop_tui.connect.live import (
    FILES_PER_HOST,
    FILES_PER_SOURCE,
    SPARE_FILES,
    FileLimit,
    LiveSource,
)
from frtop_tui.connect.pipes.places import places
from frtop_tui.diagnosis.engine import Engine, Judgement
from frtop_tui.diagnosis.model import Frame
from frtop_tui.errors import KeyTrouble
from waiting import wait_for


@pytest.fixture
def source(folder: Path) -> Iterator[LiveSource]:
    one = LiveSource()
    yield one
    one.close()
    one.close()  # a second call does nothing


def test_no_agent_and_then_one(source: LiveSource, start_agent: Start) -> None:
    frame = frame_with(source, lambda f: f.problem)
    assert "no agent" in str(frame.problem)
    assert "frtop run -- torchrun" in str(frame.problem)
    start_agent()
    frame = frame_with(source, lambda f: f.health == "empty")
    assert not frame.problem
    (host,) = frame_with(source, lambda f: f.hosts[0].clock_error_ns is not None).hosts
    assert abs(host.clock_ns) <= (host.clock_error_ns or 0) + 5_000_000  # it is the same clock
    assert host.address.startswith("127.0.0.1:")


def test_a_missing_key_is_reported_not_made(
    folder: Path, start_agent: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start_agent()
    monkeypatch.setenv("FRTOP_KEY_FILE", str(tmp_path / "other"))
    with closing(LiveSource()) as source:
        frame = frame_with(source, lambda f: "there is no key" in str(f.problem))
        assert str(tmp_path / "other") in str(frame.problem)
        assert "the agent of this host keeps its key elsewhere" in str(frame.problem)
        assert not keys.path().exists()


def test_no_key_is_made_for_remote_hosts(folder: Path) -> None:
    with pytest.raises(KeyTrouble, match="no key"):
        LiveSource(["node[0-3]"])
    assert not keys.path().exists()


def test_a_failure_of_frtop_is_reported_without_verdicts(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: Engine, frame: Frame) -> Judgement:
        raise LookupError("raised by the test")

    monkeypatch.setattr(Engine, "judge", broken)
    keys.load(create=True)
    with closing(LiveSource()) as source:
        frame = frame_with(source, lambda f: "frtop itself failed" in str(f.problem))
        assert "raised by the test" in str(frame.problem)
        assert frame.health == "undecided"


def test_hosts_behind_a_shell_need_neither_key_nor_agent(folder: Path) -> None:
    key = Path(os.environ["FRTOP_KEY_FILE"])
    command = f"env -i PATH={os.environ['PATH']} FRTOP_UNPREPARED=0 sh"
    with closing(LiveSource([], places=places(["here"], command))) as source:
        wait_for(lambda: [host.state for host in source.frame().hosts] == ["reporting"], "a frame")
        (host,) = source.frame().hosts
        assert host.may_act
        assert host.address == "via env"
    assert not key.exists()
    assert not list(folder.iterdir())


def test_many_sources_count_together_and_the_hard_limit_holds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [1024, 4096]
    monkeypatch.setattr(resource, "getrlimit", lambda _: tuple(now))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: now.__setitem__(0, limits[0]))
    limit = FileLimit()
    with limit.room_for(16):
        assert now[0] == 1024
        with ExitStack() as stack:
            for _ in range(31):
                stack.enter_context(limit.room_for(16))
            assert now[0] == SPARE_FILES + 32 * (FILES_PER_SOURCE + 16 * FILES_PER_HOST)
            with limit.room_for(10_000) as fitting:
                assert now[0] == 4096
            used = SPARE_FILES + 33 * FILES_PER_SOURCE + 32 * 16 * FILES_PER_HOST
            assert fitting == (4096 - used) // FILES_PER_HOST
    with limit.room_for(1) as fitting:
        assert fitting == 1
        assert limit._wanted == SPARE_FILES + FILES_PER_SOURCE + FILES_PER_HOST


def test_hosts_for_which_there_are_no_files_say_so(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (300, 300))
    keys.load(create=True)
    with closing(LiveSource(["127.0.0.[1-20]"])) as source:
        frame = frame_with(source, lambda f: len(f.hosts) == 20)
    said = [host.name for host in frame.hosts if "enough for 9 hosts" in str(host.problem)]
    assert said == [f"127.0.0.{n}" for n in range(10, 21)]

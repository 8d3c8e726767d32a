"""The agent that frtop starts on this host: when, with which key, and what it says on failure."""

from __future__ import annotations

import os
import signal
import stat
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from agent.ring_builder import RingBuilder
from connect.conftest import frame_with
from frtop_probe import keys
from frtop_probe.agent import announcement
from frtop_probe.agent.agent_lock import AgentLock
from frtop_probe.recorder.process import agent_launch
from frtop_probe.ring.folder import AgentFiles
from frtop_tui.cli.live import AppearanceTimer
from frtop_tui.connect import agent_start
from frtop_tui.connect.agent_start import NO_AGENT, absence, keep_agent, start_agent
from frtop_tui.connect.live import LiveSource
from frtop_tui.diagnosis.model import Frame
from frtop_tui.errors import NoAgent
from frtop_tui.job.model import Problem
from waiting import wait_for


@pytest.fixture(autouse=True)
def clean(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("FRTOP_AGENT", raising=False)
    monkeypatch.setattr(agent_start, "_attempts", {})
    monkeypatch.setattr(agent_start, "_awaited", {})
    yield
    files = AgentFiles.here(folder)

    def is_gone() -> bool:
        for card in announcement.find_agents(folder):  # one may announce itself only now
            with suppress(ProcessLookupError):
                os.kill(card.pid, signal.SIGTERM)
        return not files.lives

    wait_for(is_gone, "the agent leaves")


def announced(folder: Path) -> announcement.Announcement:
    return wait_for(lambda: announcement.find_agent(folder), lambda: f"an agent: {absence(folder)}")


def killed(folder: Path) -> int:
    """Kills the agent that has announced itself; returns its pid."""
    pid = announced(folder).pid
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: announcement.find_agent(folder) is None, "it is gone")
    return pid


def start_silent_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on, agents end at once and say nothing."""
    silent = tmp_path / "python"
    silent.write_text("#!/bin/sh\n")
    silent.chmod(stat.S_IRWXU)
    monkeypatch.setenv("FRTOP_AGENT_PYTHON", str(silent))


def test_an_agent_and_a_key_are_made(folder: Path) -> None:
    assert start_agent() is None
    assert keys.load(create=False)
    assert absence(folder) is None  # it is starting
    card = announced(folder)
    assert start_agent() is None
    assert [one.pid for one in announcement.find_agents(folder)] == [card.pid]


def test_it_is_turned_off(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRTOP_AGENT", "0")
    assert start_agent() is None
    assert absence(folder) == NO_AGENT
    assert not keys.path().exists()
    assert not AgentFiles.here(folder).log.exists()


def test_no_key_is_made_beside_a_prepared_rank(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rank 0 runs elsewhere, and another home may have a key already."""
    monkeypatch.setattr(agent_start, "KEY_S", 0.5)
    RingBuilder(folder, rank=1)
    assert start_agent() is None
    assert not keys.path().exists()
    problem = wait_for(lambda: absence(folder), "what is awaited")
    assert "waits for this user's key" in problem.text
    assert str(keys.path()) in problem.next
    keys.load(create=True)  # somebody copies it
    announced(folder)


def test_the_agents_own_words_reach_the_user(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    keys.load(create=True).path.chmod(0o644)
    monkeypatch.setattr(agent_start, "MESSAGE_S", 0.0)
    assert start_agent() is None
    assert agent_start.is_starting()
    problem = wait_for(lambda: absence(folder), "a problem")
    assert not agent_start.is_starting()
    assert "can be read by others" in problem.text
    assert f"chmod 600 {tmp_path / 'key'}" in problem.text
    keys.path().chmod(0o600)
    assert start_agent() is None  # at once: a person waits
    announced(folder)


def test_an_agent_that_never_comes_up_is_reported(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    start_silent_python(tmp_path, monkeypatch)
    assert start_agent() is None
    assert absence(folder) is None
    monkeypatch.setattr(agent_start, "START_S", 0.0)
    assert absence(folder) == agent_start.NOT_STARTED


def test_a_python_that_cannot_be_run_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FRTOP_AGENT_PYTHON", "/nowhere/python")
    problem = start_agent()
    assert problem is not None
    assert "/nowhere/python" in problem.text
    assert problem.next == "run `frtop agent` on this host"


def test_a_folder_of_others_is_refused(folder: Path) -> None:
    folder.chmod(0o755)
    problem = start_agent()
    folder.chmod(0o700)
    assert isinstance(problem, Problem)
    assert "open to other users" in problem.text


def test_after_a_kill_the_same_rings_are_served_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its card and lock file lie there, and no rank may have noticed yet."""
    RingBuilder(folder, rank=0)
    assert start_agent() is None
    first = killed(folder)
    monkeypatch.setattr(agent_start, "_attempts", {})
    assert start_agent() is None
    with closing(LiveSource()) as source:
        frame = frame_with(source, lambda frame: frame.ranks or frame.problem)
        assert not frame.problem
    assert announced(folder).pid != first


def test_an_agent_that_was_about_to_leave_is_replaced(folder: Path) -> None:
    files = AgentFiles.here(folder)
    leaving = AgentLock.take(files)
    assert leaving is not None
    assert start_agent() is None
    assert absence(folder) is None
    leaving.remove_files()
    leaving.release()
    announced_pid = wait_for(
        lambda: absence(folder) or announcement.find_agent(folder), "another agent"
    )
    assert isinstance(announced_pid, announcement.Announcement)


def test_an_agent_that_dies_while_a_screen_is_open_is_replaced(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_agent(folder)
    assert announcement.find_agent(folder) is None  # this process wanted none
    assert start_agent() is None
    first = killed(folder)
    keep_agent(folder)
    assert not AgentFiles.here(folder).lives  # not again and again
    monkeypatch.setattr(agent_start, "START_S", 0.0)
    keep_agent(folder)
    assert announced(folder).pid != first


def attempts_counted(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The times at which an agent is started from now on."""
    times: list[float] = []
    start = agent_launch.ensure_agent

    def count(*arguments: Any, **options: Any) -> str:
        times.append(time.monotonic())
        return start(*arguments, **options)

    monkeypatch.setattr(agent_launch, "ensure_agent", count)
    return times


def test_an_agent_that_cannot_come_up_is_started_ever_more_rarely(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As long as a screen is open, which may be for days."""
    assert start_agent() is None
    killed(folder)
    start_silent_python(tmp_path, monkeypatch)
    monkeypatch.setattr(agent_start, "START_S", 0.05)
    times = attempts_counted(monkeypatch)

    def fifth() -> bool:
        keep_agent(folder)
        return len(times) == 5

    wait_for(fifth, "the fifth attempt")
    pauses = [after - before for before, after in pairwise(times)]
    assert all(pause >= 0.05 * 2**n for n, pause in enumerate(pauses, 1))


def test_an_agent_that_lived_for_long_is_replaced_at_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert start_agent() is None
    times = attempts_counted(monkeypatch)
    agent_start._attempts[folder].begun -= 3600
    keep_agent(folder, running=True)
    killed(folder)
    keep_agent(folder)
    keep_agent(folder)
    assert len(times) == 1
    assert agent_start._attempts[folder].pause_s == agent_start.START_S
    announced(folder)


def test_a_start_that_fails_is_not_repeated_at_every_search(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaving = AgentLock.take(AgentFiles.here(folder))
    assert leaving is not None
    assert start_agent() is None
    leaving.remove_files()
    leaving.release()
    monkeypatch.setenv("FRTOP_AGENT_PYTHON", "/nowhere/python")
    times = attempts_counted(monkeypatch)
    for _ in range(5):
        problem = absence(folder)
        assert problem is not None
        assert "/nowhere/python" in problem.text
    assert len(times) == 1
    monkeypatch.delenv("FRTOP_AGENT_PYTHON")
    monkeypatch.setattr(agent_start, "START_S", 0.0)
    wait_for(lambda: absence(folder) is None, "after a pause it is")
    announced(folder)


def test_living_ranks_that_start_no_agent_are_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    RingBuilder(folder, rank=0)
    monkeypatch.setenv("FRTOP_AGENT", "0")
    monkeypatch.setattr(agent_start, "RANKS_START_S", 0.1)
    assert start_agent() is None
    assert absence(folder) is None
    assert agent_start.is_starting()
    assert wait_for(lambda: absence(folder), "the reason") == agent_start.NO_LONGER
    assert not agent_start.is_starting()


def test_an_agent_that_ended_before_it_was_found_is_started_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(agent_start, "START_S", 1.0)
    times = attempts_counted(monkeypatch)
    with monkeypatch.context() as now:
        start_silent_python(tmp_path, now)
        assert start_agent() is None
        wait_for(lambda: absence(folder) == agent_start.NOT_STARTED, "it did not come up")
        assert len(times) == 2
    wait_for(lambda: absence(folder) is None and len(times) == 3, "one that can come up starts")
    announced(folder)


def test_an_agent_that_is_killed_just_after_it_was_found_is_waited_for(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("frtop_tui.cli.live.NOBODY_S", 0.0)
    timer, absent = AppearanceTimer(), Frame(0, 0, problem=NO_AGENT)
    RingBuilder(folder, rank=0)
    monkeypatch.setenv("FRTOP_AGENT", "0")
    keep_agent(folder)
    assert agent_start.is_starting()
    timer.require_visible(absent)  # no error yet
    keep_agent(folder, running=True)
    assert not agent_start.is_starting()
    with pytest.raises(NoAgent):
        timer.require_visible(absent)

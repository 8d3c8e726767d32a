"""`--kill`: real processes, and those that must not be touched."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from frtop_probe.proc import processes
from frtop_tui.diagnosis.model import Frame
from frtop_tui.features.watch.job_end import RankProcess, end_ranks, plan_end
from frtop_tui.job.model import AgentKey
from screens import scenes

DEAF = "import signal, time; signal.signal(15, signal.SIG_IGN); print(flush=True); time.sleep(600)"


@pytest.fixture
def rank() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "600"]) as one:
        yield one
        one.kill()


def identity(process: subprocess.Popen[bytes]) -> RankProcess:
    stat = processes.read_stat(process.pid)
    assert stat is not None
    return RankProcess(3, process.pid, stat.start_ticks)


def test_a_rank_is_ended_by_sigterm(rank: subprocess.Popen[bytes]) -> None:
    assert end_ranks([identity(rank)]) == ""
    assert rank.wait() == -signal.SIGTERM
    assert end_ranks([RankProcess(3, rank.pid, 1)]) == ""


def test_a_rank_that_ignores_it_is_killed_after_the_grace() -> None:
    with subprocess.Popen([sys.executable, "-c", DEAF], stdout=subprocess.PIPE) as one:
        assert one.stdout is not None
        one.stdout.readline()
        assert end_ranks([identity(one)], grace_s=0.3) == ""
        assert one.wait() == -signal.SIGKILL


def test_another_process_with_the_pid_is_left_alone(rank: subprocess.Popen[bytes]) -> None:
    known = identity(rank)
    said = end_ranks([known._replace(start_ticks=known.start_ticks - 1)], grace_s=0.1)
    assert said == f"pid {rank.pid} is no longer rank 3: not ended"
    assert rank.poll() is None


def test_a_process_of_another_user_is_left_alone(
    rank: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.getuid", lambda: 4242)
    assert "another user's" in end_ranks([identity(rank)], grace_s=0.1)
    assert rank.poll() is None


def told(key: AgentKey, foreign: str = "") -> Frame:
    """A job, and whose key its agents have proved; that of `foreign` has another user's."""
    frame = scenes.hung()
    hosts = [replace(one, agent_key="other" if one.name == foreign else key) for one in frame.hosts]
    return replace(frame, hosts=tuple(hosts))


def test_ranks_of_other_hosts_are_said() -> None:
    frame = told("own")
    host = frame.ranks[0].host
    plan = plan_end(frame, {host})
    mine = {rank for rank, view in frame.ranks.items() if view.host == host}
    assert {one.rank for one in plan.ranks} == mine
    assert plan.problem == "ranks 8-63 run on other hosts: not ended from here"
    assert plan_end(replace(frame, ranks={0: frame.ranks[0]}), {host}).problem == ""
    assert not plan_end(frame, ()).ranks


def test_who_has_not_proved_our_key_names_no_process_of_ours() -> None:
    plan = plan_end(told(""), {"node0"})
    assert not plan.ranks
    assert "ranks 0-7 have no agent that has proved to have our key: not ended" in plan.problem


@pytest.mark.parametrize("host", ["node0", "node3"])
def test_an_agent_that_is_only_trusted_has_no_rank_ended(host: str) -> None:
    """It could name any pid, or add to our job a rank that has died."""
    plan = plan_end(told("own", host), {"node0"})
    assert not plan.ranks
    assert plan.problem.startswith("another user's agent reports ranks ")

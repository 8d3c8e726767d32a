"""One agent runs per folder as long as it is needed, and leaves no files."""

from __future__ import annotations

import functools
import json
import os
import resource
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
import zmq

from agent.agent_host import DEADLINE, Host
from agent.ring_builder import RingBuilder
from frtop_probe import wire
from frtop_probe.agent import announcement
from frtop_probe.agent.agent_lock import AgentLock
from frtop_probe.agent.rank_tracker import MAX_RANKS
from frtop_probe.agent.resources import MEMORY
from frtop_probe.agent.service import REQUEST_GAP, tick_s
from frtop_probe.proc import processes
from frtop_probe.ring.folder import agent_lives
from waiting import wait_for


@pytest.mark.parametrize(
    ("ranks", "seconds"), [(0, 0.5), (16_384, 0.5), (32_768, 1.0), (100_000, 2.0), (10**9, 2.0)]
)
def test_agents_of_a_very_large_job_tick_more_rarely(ranks: int, seconds: float) -> None:
    assert tick_s(ranks) == seconds


def test_of_many_agents_started_at_once_one_stays(host: Host) -> None:
    agents = [host.spawn() for _ in range(3)]
    wait_for(lambda: sum(agent.poll() is None for agent in agents) == 1, "one is left")
    card = wait_for(lambda: announcement.find_agent(host.folder), "it announces itself")
    (running,) = [agent for agent in agents if agent.poll() is None]
    assert card.pid == running.pid
    for agent in agents:
        if agent is not running:
            out, errors = agent.communicate()
            assert (agent.returncode, out, errors) == (0, "", "")


def test_the_card_is_private_and_a_second_agent_started_by_hand_says_that_one_runs(
    host: Host,
) -> None:
    card = host.agent()
    path = host.files.card
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert set(json.loads(path.read_text())) == set(announcement.Announcement.__slots__)
    program = (
        "from frtop_probe.agent.lifecycle import serve;"
        "from frtop_probe.agent.options import Options;"
        "raise SystemExit(serve(Options.from_environment()))"
    )
    second = subprocess.run(
        [sys.executable, "-c", program], env=host.environment, capture_output=True, text=True,
        timeout=DEADLINE, check=False,
    )  # fmt: skip
    assert second.returncode == 0
    assert f"pid {card.pid}" in second.stderr
    assert str(card.pub) in second.stderr
    host.agents[-1].send_signal(signal.SIGINT)
    assert host.agents[-1].wait(DEADLINE) == 0
    assert not list(host.folder.iterdir())


def test_the_card_of_a_killed_agent_is_ignored(host: Host) -> None:
    host.agent()
    host.agents[-1].kill()
    host.agents[-1].wait()
    assert host.files.card.exists()
    assert announcement.find_agent(host.folder) is None
    assert announcement.find_agent(host.folder / "nowhere") is None
    following = AgentLock.take(host.files)  # holds the lock, and has removed nothing yet
    assert following is not None
    assert announcement.find_agent(host.folder) is None
    following.release()
    assert host.agent().pid == host.agents[-1].pid


def test_testing_the_lock_does_not_prevent_taking_it(host: Host) -> None:
    lock = AgentLock.take(host.files)
    assert lock is not None
    assert agent_lives(host.folder)
    assert AgentLock.take(host.files) is None
    lock.release()
    assert not agent_lives(host.folder)
    again = AgentLock.take(host.files)
    assert again is not None
    again.release()


def test_an_agent_waits_for_one_that_is_leaving(host: Host) -> None:
    """One that leaves has no card any more; on a loaded host that takes it seconds."""
    leaving = AgentLock.take(host.files)
    assert leaving is not None
    process = host.spawn()
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(1)
    leaving.release()
    card = wait_for(lambda: announcement.find_agent(host.folder), "the next one")
    assert card.pid == process.pid


def test_an_agent_that_leaves_is_not_found_by_its_card(host: Host) -> None:
    """Whoever sees its connection end, and looks for the next one, must not find this one."""
    card = host.agent()
    operator = host.operator(card)
    monitor = operator.dealer.get_monitor_socket(zmq.Event.DISCONNECTED)
    operator.state()
    os.kill(card.pid, signal.SIGTERM)
    ended = monitor.poll(int(DEADLINE * 1000))
    found = announcement.find_agent(host.folder)
    operator.dealer.disable_monitor()
    monitor.close()
    assert (bool(ended), found) == (True, None)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"pid": 1}', '{"pid": "x"}'])
def test_a_malformed_card_is_ignored(host: Host, content: str) -> None:
    lock = AgentLock.take(host.files)
    assert lock is not None
    host.files.card.write_text(content)
    assert announcement.find_agent(host.folder) is None
    lock.release()


def test_an_agent_leaves_after_its_linger_time_and_removes_rings(host: Host) -> None:
    rank = host.rank("wait")
    ring = next(host.folder.glob("*.ring"))
    host.agent(FRTOP_AGENT_LINGER="0.5")
    with pytest.raises(subprocess.TimeoutExpired):
        host.agents[-1].wait(1)  # the rank lives
    rank.kill()
    assert host.agents[-1].wait(DEADLINE) == 0
    assert not ring.exists()


QUICK = """
import sys
from frtop_probe.agent import service
from frtop_probe.agent.__main__ import main
service.REQUEST_GAP = 1.0
sys.exit(main())
"""
"""An agent for which a second without a request is enough; e2e/test_unprepared has all 8."""


def test_an_operators_agent_leaves_after_the_last_request(host: Host) -> None:
    card = host.agent("--for-operator", program=("-c", QUICK), FRTOP_AGENT_LINGER="0")
    operator = host.operator(card)
    asked = time.monotonic()
    operator.state()
    assert host.agents[-1].wait(DEADLINE) == 0
    assert time.monotonic() - asked >= 1.0


@pytest.mark.long
def test_an_operators_agent_with_a_prepared_rank_stays_as_any_other(host: Host) -> None:
    host.rank("wait")
    card = host.agent("--for-operator", FRTOP_AGENT_LINGER="0")
    with pytest.raises(subprocess.TimeoutExpired):
        host.agents[-1].wait(REQUEST_GAP + 2)
    now = announcement.find_agent(host.folder)
    assert now is not None
    assert now.instance == card.instance  # it did not leave and come back either


def test_processes_are_looked_at_or_left_alone_as_the_variable_says(host: Host) -> None:
    children = functools.partial(_children, host)
    operator = host.operator(host.agent(FRTOP_UNPREPARED="0"))
    operator.state()
    time.sleep(1.5)
    assert children() == []
    host.agents[-1].terminate()
    wait_for(lambda: not agent_lives(host.folder), "it ends")
    operator = host.operator(host.agent(FRTOP_UNPREPARED="1"))
    assert children() == []
    operator.state()
    wait_for(children, "the child that reads")


def _children(host: Host) -> list[int]:
    return list(processes.descendants(host.agents[-1].pid))


def test_an_agent_removes_only_its_own_files(host: Host) -> None:
    living = host.rank("wait")
    foreign = RingBuilder(host.folder, start_ticks=5, namespace=1).path
    stale = RingBuilder(host.folder, start_ticks=6, boot_id=bytes(16)).path
    odd = host.folder / "notes.txt"
    odd.write_text("mine")
    host.operator(host.agent()).state()
    host.agents[-1].terminate()
    assert host.agents[-1].wait(DEADLINE) == 0
    rings = {path.name for path in host.folder.glob("*.ring")}
    assert {foreign.name, stale.name} < rings
    assert any(name.startswith(f"{living.pid}-") for name in rings)
    assert odd.exists()


def test_an_agent_leaves_with_its_companion(host: Host) -> None:
    companion = subprocess.Popen(["sleep", "600"])
    try:
        host.agent(FRTOP_AGENT_WITH=str(companion.pid), FRTOP_AGENT_LINGER="0")
        time.sleep(0.8)
        assert host.agents[-1].poll() is None
    finally:
        companion.kill()
        companion.wait()
    assert host.agents[-1].wait(DEADLINE) == 0
    late = host.spawn(FRTOP_AGENT_WITH=str(companion.pid))
    assert late.wait(DEADLINE) == 0


def test_an_agent_drops_inherited_descriptors_and_limits(host: Host) -> None:
    inherited = os.open(host.folder, os.O_RDONLY)
    os.set_inheritable(inherited, True)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    agent = subprocess.Popen(
        ["taskset", "-c", "0", sys.executable, "-m", "frtop_probe.agent"], env=host.environment,
        close_fds=False, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    os.close(inherited)
    host.agents.append(agent)
    wait_for(lambda: announcement.find_agent(host.folder), "it announces itself")
    folder = Path(f"/proc/{agent.pid}")
    links = [link.readlink() for link in (folder / "fd").iterdir()]
    assert host.folder not in links
    assert (folder / "cwd").readlink() == Path("/")
    assert os.sched_getaffinity(agent.pid) >= os.sched_getaffinity(0)
    assert os.getpriority(os.PRIO_PROCESS, agent.pid) > os.getpriority(os.PRIO_PROCESS, 0)
    assert resource.prlimit(agent.pid, resource.RLIMIT_NOFILE)[0] >= min(hard, 2 * MAX_RANKS)
    # Beyond the limit the agent ends, and no rank beside it.
    assert 0 < resource.prlimit(agent.pid, resource.RLIMIT_DATA)[0] <= MEMORY


def test_an_agent_ends_cleanly_while_it_takes_snapshots(host: Host) -> None:
    for rank in range(3):
        host.rank("wait", rank=rank)
    operator = host.operator(host.agent())
    operator.state()
    for number in range(4):
        request = wire.SnapshotRequest(number, (1, 2, 3), ops=9)
        operator.dealer.send(wire.to_frame(request))
    operator.dealer.recv()
    host.agents[-1].terminate()
    _, errors = host.agents[-1].communicate(timeout=DEADLINE)
    assert host.agents[-1].returncode == 0
    assert all(", asked by frtop_" in line for line in errors.splitlines()), errors


def test_a_flood_of_requests_does_not_stop_the_updates(host: Host) -> None:
    host.rank("wait")
    operator = host.operator(host.agent())
    operator.state()
    number = operator.update().number
    end = time.monotonic() + DEADLINE
    for later in (1, 2):
        while not operator.subscriber.poll(0):
            assert time.monotonic() < end, "no update while requests come"
            operator.dealer.send(wire.to_frame(wire.StateRequest(1)))
        assert operator.update().number == number + later

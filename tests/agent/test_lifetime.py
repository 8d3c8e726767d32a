"""One agent per folder, for as long as it is needed, and no traces afterwards."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agent.host import DEADLINE, Host, until
from agent.ringmaker import RingMaker
from frtop_probe import wire
from frtop_probe.agent import announcement
from frtop_probe.agent.announcement import Lock
from frtop_probe.agent.roster import MAX_RANKS
from frtop_probe.agent.serve import MEMORY
from frtop_probe.ring.folder import agent_lives


def test_of_many_that_start_one_stays_and_the_others_leave_quietly(host: Host) -> None:
    agents = [host.spawn() for _ in range(4)]
    until(lambda: sum(agent.poll() is None for agent in agents) == 1, "one is left")
    card = until(lambda: announcement.read(host.folder), "it announces itself")
    (stays,) = [agent for agent in agents if agent.poll() is None]
    assert card.pid == stays.pid
    for agent in agents:
        if agent is not stays:
            out, complaint = agent.communicate()
            assert (agent.returncode, out, complaint) == (0, "", "")


def test_the_second_one_started_by_hand_gets_a_sentence(host: Host) -> None:
    card = host.agent()
    program = (
        "from frtop_probe.agent.serve import Options, serve;"
        "raise SystemExit(serve(Options.from_environment()))"
    )
    second = subprocess.run(
        [sys.executable, "-c", program],
        env=host.environment,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert second.returncode == 0
    assert f"pid {card.pid}" in second.stderr
    assert str(card.pub) in second.stderr


def test_the_card_is_private_and_goes_with_the_agent(host: Host) -> None:
    host.agent()
    path = host.files.card
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert set(json.loads(path.read_text())) == set(announcement.Announcement.__slots__)
    host.agents[-1].send_signal(signal.SIGINT)
    assert host.agents[-1].wait(DEADLINE) == 0
    assert not list(host.folder.iterdir())


def test_a_leftover_card_is_no_agent(host: Host) -> None:
    host.agent()
    host.agents[-1].kill()
    host.agents[-1].wait()
    assert host.files.card.exists()
    assert announcement.read(host.folder) is None
    assert announcement.read(host.folder / "nowhere") is None
    assert host.agent().pid == host.agents[-1].pid


def test_a_folder_made_anew_belongs_to_the_next_agent(host: Host) -> None:
    first = host.spawn()
    until(lambda: announcement.read(host.folder), "it announces itself")
    shutil.rmtree(host.folder)
    host.folder.mkdir(mode=0o700)
    second = host.agent()
    first.terminate()
    first.wait(DEADLINE)
    assert announcement.read(host.folder) == second


def test_asking_for_the_lock_does_not_keep_an_agent_from_it(host: Host) -> None:
    lock = Lock.take(host.files)
    assert lock is not None
    assert agent_lives(host.folder)
    assert Lock.take(host.files) is None
    lock.release()
    assert not agent_lives(host.folder)
    again = Lock.take(host.files)
    assert again is not None
    again.release()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"pid": 1}', '{"pid": "x"}'])
def test_a_card_nobody_can_read_is_no_agent(host: Host, content: str) -> None:
    lock = Lock.take(host.files)
    assert lock is not None
    host.files.card.write_text(content)
    assert announcement.read(host.folder) is None
    lock.release()


def test_it_leaves_some_time_after_its_last_rank_and_clears_up(host: Host) -> None:
    rank = host.rank("wait")
    ring = next(host.folder.glob("*.ring"))
    host.agent("--linger", "1")
    with pytest.raises(subprocess.TimeoutExpired):
        host.agents[-1].wait(2)  # the rank lives
    rank.kill()
    assert host.agents[-1].wait(DEADLINE) == 0
    assert not ring.exists()


def test_without_any_rank_it_leaves_too(host: Host) -> None:
    host.agent(FRTOP_AGENT_LINGER="0.6")
    assert host.agents[-1].wait(DEADLINE) == 0


def test_what_is_not_its_own_stays(host: Host) -> None:
    living = host.rank("wait")
    foreign = RingMaker(host.folder, start_ticks=5, namespace=1).path
    stale = RingMaker(host.folder, start_ticks=6, boot_id=bytes(16)).path
    odd = host.folder / "notes.txt"
    odd.write_text("mine")
    host.operator(host.agent()).state()
    host.agents[-1].terminate()
    assert host.agents[-1].wait(DEADLINE) == 0
    rings = {path.name for path in host.folder.glob("*.ring")}
    assert {foreign.name, stale.name} < rings
    assert any(name.startswith(f"{living.pid}-") for name in rings)
    assert odd.exists()


def test_it_leaves_with_the_process_it_came_with(host: Host) -> None:
    companion = subprocess.Popen(["sleep", "600"])
    try:
        host.agent(FRTOP_AGENT_WITH=str(companion.pid), FRTOP_AGENT_LINGER="0")
        time.sleep(0.8)
        assert host.agents[-1].poll() is None
    finally:
        companion.kill()
        companion.wait()
    assert host.agents[-1].wait(DEADLINE) == 0


def test_a_companion_that_is_over_already_ends_it_at_once(host: Host) -> None:
    agent = host.spawn("--with-pid", "4194304")
    assert agent.wait(DEADLINE) == 0


def test_it_frees_itself_from_what_it_inherited(host: Host) -> None:
    held = os.open(host.folder, os.O_RDONLY)
    os.set_inheritable(held, True)
    agent = subprocess.Popen(
        ["taskset", "-c", "0", sys.executable, "-m", "frtop_probe.agent"],
        env=host.environment,
        close_fds=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(held)
    host.agents.append(agent)
    until(lambda: announcement.read(host.folder), "it announces itself")
    place = Path(f"/proc/{agent.pid}")
    links = [link.readlink() for link in (place / "fd").iterdir()]
    assert host.folder not in links
    assert (place / "cwd").readlink() == Path("/")
    assert os.sched_getaffinity(agent.pid) >= os.sched_getaffinity(0)
    assert os.getpriority(os.PRIO_PROCESS, agent.pid) > os.getpriority(os.PRIO_PROCESS, 0)
    # Whoever makes it grow ends the agent, and no rank beside it.
    assert 0 < resource.prlimit(agent.pid, resource.RLIMIT_DATA)[0] <= MEMORY


def test_it_may_open_enough_files_for_all_its_ranks(host: Host) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        card = host.agent()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert resource.prlimit(card.pid, resource.RLIMIT_NOFILE)[0] >= min(hard, 2 * MAX_RANKS)


def test_ended_ranks_make_room_for_new_ones(host: Host) -> None:
    """Their rings lie in shared memory, which a job that restarts must not fill up."""
    paths = [RingMaker(host.folder, start_ticks=n + 1).path for n in range(40)]
    operator = host.operator(host.agent())
    assert len(operator.state().ranks) == 40
    rank = host.rank("wait")

    def adopted() -> bool:
        last = operator.state().ranks[-1].identity
        return last is not None and last.pid == rank.pid

    until(adopted, "the new rank is adopted")
    assert len(operator.state().ranks) == 40
    assert sum(path.exists() for path in paths) == 39


def test_it_leaves_in_order_in_the_middle_of_looks(host: Host) -> None:
    for rank in range(3):
        host.rank("wait", rank=rank)
    operator = host.operator(host.agent())
    operator.state()
    for number in range(4):
        ask = wire.SnapshotRequest(number, (1, 2, 3), ops=9)
        operator.dealer.send(wire.packed(ask))
    operator.dealer.recv()
    host.agents[-1].terminate()
    _, complaint = host.agents[-1].communicate(timeout=DEADLINE)
    assert (host.agents[-1].returncode, complaint) == (0, "")


def test_a_flood_of_questions_does_not_stop_the_updates(host: Host) -> None:
    host.rank("wait")
    operator = host.operator(host.agent())
    operator.state()
    first = operator.update()
    end = time.monotonic() + 1.5
    while time.monotonic() < end:
        operator.dealer.send(wire.packed(wire.StateRequest(1)))
    second = operator.update()
    assert second.number == first.number + 1
    assert second.monotonic_ns - first.monotonic_ns < 1e9

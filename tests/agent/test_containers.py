"""Shared, cleared and littered folders, and killed agents: every rank finds its agent again."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from agent.agent_host import DEADLINE, Host, Operator
from frtop_probe import wire
from frtop_probe.agent import announcement
from frtop_probe.agent.announcement import Announcement
from frtop_probe.ring.folder import AgentFiles
from frtop_probe.ring.pid_namespace import PidNamespace
from waiting import wait_for

PROGRAM = Path(__file__).with_name("recorded_program.py")
CONTAINER = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def shared(host: Host) -> Iterator[Host]:
    """A host whose folder is in shared memory."""
    folder = Path("/dev/shm") / f"frtop-test-{secrets.token_hex(4)}"
    folder.mkdir(mode=0o700)
    host.folder, host.files = folder, AgentFiles.here(folder)
    host.environment |= {"FRTOP_DIR": str(folder), "FRTOP_AGENT_LINGER": "2"}
    yield host
    for card in announcement.find_agents(folder):
        if card.pid_namespace == PidNamespace.here().inode:
            os.kill(card.pid, signal.SIGTERM)
    wait_for(lambda: not announcement.find_agents(folder), "the agents leave")

    def removed() -> bool:  # an agent that leaves removes its own files meanwhile
        shutil.rmtree(folder, ignore_errors=True)
        return not folder.exists()

    wait_for(removed, "the folder is removed")


@pytest.fixture
def start(shared: Host) -> Iterator[Start]:
    """Starts ranks with a real recorder, through `command`."""
    started: list[subprocess.Popen[str]] = []

    def start(*command: str, rank: int = 0) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [*command, sys.executable, str(PROGRAM)],
            env={**shared.environment, "RANK": str(rank)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def wait_until_ready(process: subprocess.Popen[str]) -> int:
    """Waits until the rank records; returns its pid in its own namespace."""
    assert process.stdout is not None
    word, _, pid = process.stdout.readline().partition(" ")
    assert word == "ready", process.communicate()
    return int(pid)


def send_command(process: subprocess.Popen[str], text: str) -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(text + "\n")
    process.stdin.flush()
    return process.stdout.readline().strip()


def living_pids(operator: Operator) -> set[int]:
    """The pids of the ranks reported as living."""
    ranks = operator.state().ranks
    return {r.identity.pid for r in ranks if r.identity is not None and r.exit_info is None}


def only_rank(operator: Operator) -> int:
    """The one rank that an agent tracks."""
    identity = operator.ranks()[0].identity
    assert identity is not None
    return identity.rank


def wait_for_agents(host: Host, number: int) -> dict[int, Announcement]:
    """Waits for `number` running agents; returns them by pid namespace."""
    found = wait_for(
        lambda: cards if len(cards := announcement.find_agents(host.folder)) == number else None,
        f"{number} agents live",
        3 * DEADLINE,
    )
    return {card.pid_namespace: card for card in found}


def namespaces_or_skip(*command: str) -> None:
    tried = subprocess.run([*command, "true"], capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"no namespaces here: {tried.stderr.strip()}")


def test_containers_sharing_a_folder_have_one_agent_each(shared: Host, start: Start) -> None:
    namespaces_or_skip(*CONTAINER, "--net")
    first = start(*CONTAINER)
    second = start(*CONTAINER, rank=1)
    # "*" in one network namespace does not reach the agents of another.
    shared.environment["FRTOP_BIND"] = "*"
    isolated = start(*CONTAINER, "--net", rank=2)
    assert [wait_until_ready(process) for process in (first, second, isolated)] == [1, 1, 1]
    found = wait_for_agents(shared, 3)
    assert len(found) == 3
    in_reach = [card for card in found.values() if card.in_reach]
    (out_of_reach,) = (card for card in found.values() if not card.in_reach)
    assert len({card.pub for card in in_reach}) == 2
    assert (
        out_of_reach.pub == shared.port
    )  # the default port is free in a network namespace of its own

    operators = {card.pid_namespace: shared.operator(card) for card in in_reach}
    ranks = {}
    for namespace, operator in operators.items():
        ranks[only_rank(operator)] = namespace
    assert set(ranks) == {0, 1}

    first.kill()  # and all processes in its namespace
    first.wait()
    namespace_of_first = f"-{ranks[0]}-"
    wait_for(
        lambda: (
            len(list(shared.folder.glob("*.ring"))) == 2
            and not any(namespace_of_first in path.name for path in shared.folder.iterdir())
        ),
        "its files are removed",
    )
    left = wait_for_agents(shared, 2)
    assert left == {name: card for name, card in found.items() if name != ranks[0]}
    assert living_pids(operators[ranks[1]]) == {1}
    assert send_command(second, "step") == send_command(isolated, "step") == "done"

    for process in (second, isolated):
        process.kill()
        process.wait()
    wait_for(lambda: not announcement.find_agents(shared.folder), "no agent is left")
    shared.spawn(FRTOP_AGENT_LINGER="0.5")
    assert shared.agents[-1].wait(DEADLINE) == 0
    assert not list(shared.folder.iterdir())


def test_a_killed_agent_is_replaced_by_one_that_finds_all_ranks(shared: Host, start: Start) -> None:
    survivor, victim = start(), start(rank=1)
    pids = {wait_until_ready(survivor), wait_until_ready(victim)}
    card = wait_for_agents(shared, 1)[PidNamespace.here().inode]
    os.kill(card.pid, signal.SIGSTOP)  # it must not see the death
    send_command(victim, "kill")
    victim.wait()
    os.kill(card.pid, signal.SIGKILL)
    add_stale_files(shared)
    wait_for(
        lambda: announcement.find_agents(shared.folder) not in ((), (card,)), "another agent runs"
    )
    operator = shared.operator(wait_for_agents(shared, 1)[PidNamespace.here().inode])

    def both_ranks() -> dict[int, wire.RankUpdate] | None:
        ranks = operator.state().ranks
        found = {rank.identity.pid: rank for rank in ranks if rank.identity is not None}
        return found if pids <= set(found) and found[victim.pid].exit_info is not None else None

    ranks = wait_for(both_ranks, "the new agent has both ranks")
    exit_info = ranks[victim.pid].exit_info
    assert exit_info is not None
    assert (exit_info.clean, exit_info.exit_code, exit_info.signal) == (False, None, None)
    assert ranks[survivor.pid].exit_info is None


def add_stale_files(host: Host) -> None:
    """Adds files that killed agents and other programs may have left."""
    folder = host.folder
    (folder / "agent-12-0123abcd.json").write_text("{}")
    (folder / "agent-12-0123abcd.lock").write_text("")
    (folder / "1-1.ring").write_bytes(bytes(100))
    (folder / "2-2.ring").mkdir()
    (folder / "3-3.ring").symlink_to("/dev/null")
    (folder / "notes.ring").write_text("mine")
    (folder / "4-4.sock").write_text("no socket")
    with suppress(FileNotFoundError):
        host.files.spawn.write_text("garbage")


def test_a_cleared_folder_is_made_again_without_losing_connections(
    shared: Host, start: Start
) -> None:
    first_rank = start()
    pid = wait_until_ready(first_rank)
    card = wait_for_agents(shared, 1)[PidNamespace.here().inode]
    operator = shared.operator(card)
    wait_for(lambda: living_pids(operator) == {pid}, "it shows the rank")
    number = operator.update().number

    shutil.rmtree(shared.folder)
    wait_for(
        lambda: announcement.find_agents(shared.folder) == (card,),
        "the same agent has its card back",
    )
    assert shared.folder.stat().st_mode & 0o777 == 0o700
    assert send_command(first_rank, "step") == "done"  # the rank does not notice
    second_rank = start(rank=1)
    both_pids = {pid, wait_until_ready(second_rank)}
    wait_for(lambda: living_pids(operator) == both_pids, "both ranks are listed")
    update = operator.update()
    assert (update.instance, update.number > number) == (card.instance, True)
    assert any("was cleared" in note for note in operator.state().notes)
    for process in (first_rank, second_rank):
        _, errors = process.communicate(timeout=DEADLINE)
        assert (process.returncode, errors) == (0, "")
    wait_for(lambda: not list(shared.folder.iterdir()), "all files are removed")


def test_a_cleared_folder_is_not_made_again_without_ranks(shared: Host) -> None:
    shared.spawn(FRTOP_AGENT_LINGER="1.5")
    wait_for(lambda: announcement.find_agents(shared.folder), "it announces itself")
    shutil.rmtree(shared.folder)
    assert shared.agents[-1].wait(DEADLINE) == 0
    assert not shared.folder.exists()
    shared.folder.mkdir(mode=0o700)  # for the fixture


def test_an_agent_yields_a_cleared_folder_to_another_one(host: Host) -> None:
    old = host.rank("wait")
    card = host.agent()
    first, operator = host.agents[0], host.operator(card)
    wait_for(lambda: living_pids(operator) == {old.pid}, "it shows the rank")
    first.send_signal(signal.SIGSTOP)
    shutil.rmtree(host.folder)
    host.folder.mkdir(mode=0o700)
    second = host.agent()
    first.send_signal(signal.SIGCONT)
    wait_for(lambda: operator.state().notes, "the first agent notes that its folder was taken")
    new = host.rank("wait", rank=1)
    other = host.operator(second)
    wait_for(lambda: living_pids(other) == {new.pid}, "the other agent has the new rank")
    assert living_pids(operator) == {old.pid}
    assert announcement.find_agents(host.folder) == (second,)

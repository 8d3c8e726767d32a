"""Shared, cleared and littered folders, and killed agents: every rank finds its agent again."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
from collections.abc import Iterator
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


@pytest.fixture
def shared(host: Host) -> Iterator[Host]:
    """A host whose folder is in shared memory."""
    folder = Path("/dev/shm") / f"frtop-test-{secrets.token_hex(4)}"
    folder.mkdir(mode=0o700)
    host.folder, host.files = folder, AgentFiles.here(folder)
    host.environment |= {"FRTOP_DIR": str(folder), "FRTOP_AGENT_LINGER": "2"}
    yield host
    for rank in host.ranks:
        rank.kill()
    for card in announcement.find_agents(folder):
        if card.pid_namespace == PidNamespace.here().inode:
            os.kill(card.pid, signal.SIGTERM)
    wait_for(lambda: not announcement.find_agents(folder), "the agents leave")

    def removed() -> bool:  # an agent that leaves removes its own files meanwhile
        shutil.rmtree(folder, ignore_errors=True)
        return not folder.exists()

    wait_for(removed, "the folder is removed")


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


def left_in(folder: Path) -> list[Path]:
    """What is there, but for logs of who asked what: these stay."""
    logs = [path for path in folder.glob("*.log") if ", asked by " in path.read_text()]
    return [path for path in folder.iterdir() if path not in logs]


def namespaces_or_skip(*command: str) -> None:
    tried = subprocess.run([*command, "true"], capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"no namespaces here: {tried.stderr.strip()}")


def test_containers_sharing_a_folder_have_one_agent_each(shared: Host) -> None:
    namespaces_or_skip(*CONTAINER, "--net")
    first, second = (shared.rank(program=PROGRAM, within=CONTAINER, rank=n) for n in range(2))
    # "*" in one network namespace does not reach the agents of another.
    shared.environment["FRTOP_BIND"] = "*"
    isolated = shared.rank(program=PROGRAM, within=[*CONTAINER, "--net"], rank=2)
    assert [rank.own_pid for rank in (first, second, isolated)] == [1, 1, 1]
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
    for rank in (second, isolated):
        rank.do("step")
        rank.kill()
    wait_for(lambda: not announcement.find_agents(shared.folder), "no agent is left")
    shared.spawn(FRTOP_AGENT_LINGER="0.5")
    assert shared.agents[-1].wait(DEADLINE) == 0
    assert not left_in(shared.folder)


def test_a_killed_agent_is_replaced_by_one_that_finds_all_ranks(shared: Host) -> None:
    survivor, victim = (shared.rank(program=PROGRAM, rank=number) for number in range(2))
    pids = {survivor.pid, victim.pid}
    card = wait_for_agents(shared, 1)[PidNamespace.here().inode]
    os.kill(card.pid, signal.SIGSTOP)  # it must not see the death
    victim.send_command("kill")
    victim.process.wait()
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


def test_a_cleared_folder_is_made_again_without_losing_connections(shared: Host) -> None:
    first = shared.rank(program=PROGRAM)
    card = wait_for_agents(shared, 1)[PidNamespace.here().inode]
    operator = shared.operator(card)
    wait_for(lambda: living_pids(operator) == {first.pid}, "it shows the rank")
    number = operator.update().number

    shutil.rmtree(shared.folder)
    wait_for(
        lambda: announcement.find_agents(shared.folder) == (card,),
        "the same agent has its card back",
    )
    assert shared.folder.stat().st_mode & 0o777 == 0o700
    first.do("step")  # the rank does not notice
    second = shared.rank(program=PROGRAM, rank=1)
    wait_for(lambda: living_pids(operator) == {first.pid, second.pid}, "both ranks are listed")
    update = operator.update()
    assert (update.instance, update.number > number) == (card.instance, True)
    assert any("was cleared" in note for note in operator.state().notes)
    for rank in (first, second):
        _, errors = rank.process.communicate(timeout=DEADLINE)
        assert (rank.process.returncode, errors) == (0, "")
    wait_for(lambda: not left_in(shared.folder), "all files are removed")


def test_a_cleared_folder_is_not_made_again_without_ranks(shared: Host) -> None:
    shared.spawn(FRTOP_AGENT_LINGER="5")  # on a loaded machine, this process may sleep for seconds
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

"""Where folders are shared, cleared, littered, and agents are killed: everybody finds back."""

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

from agent.host import DEADLINE, Host, Operator, until
from frtop_probe import wire
from frtop_probe.agent import announcement
from frtop_probe.agent.announcement import Announcement
from frtop_probe.ring.folder import AgentFiles
from frtop_probe.ring.pid_namespace import PidNamespace

PROGRAM = Path(__file__).with_name("recorded_program.py")
CONTAINER = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def shared(host: Host) -> Iterator[Host]:
    """The host's folder lies in shared memory."""
    folder = Path("/dev/shm") / f"frtop-test-{secrets.token_hex(4)}"
    folder.mkdir(mode=0o700)
    host.folder, host.files = folder, AgentFiles.here(folder)
    host.environment |= {"FRTOP_DIR": str(folder), "FRTOP_AGENT_LINGER": "2"}
    yield host
    for card in announcement.living(folder):
        if card.pid_namespace == PidNamespace.here().inode:
            os.kill(card.pid, signal.SIGTERM)
    until(lambda: not announcement.living(folder), "the agents leave")
    shutil.rmtree(folder)


@pytest.fixture
def start(shared: Host) -> Iterator[Start]:
    """Starts a rank with a real recorder, by way of `command`."""
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


def ready(process: subprocess.Popen[str]) -> int:
    """Waits until the rank records; gives its pid as it sees it itself."""
    assert process.stdout is not None
    word, _, pid = process.stdout.readline().partition(" ")
    assert word == "ready", process.communicate()
    return int(pid)


def order(process: subprocess.Popen[str], text: str) -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(text + "\n")
    process.stdin.flush()
    return process.stdout.readline().strip()


def shown(operator: Operator) -> set[int]:
    """The pids of the ranks that are said to live."""
    ranks = operator.state().ranks
    return {r.identity.pid for r in ranks if r.identity is not None and r.exit_info is None}


def its_rank(operator: Operator) -> int:
    """The one rank that an agent has adopted."""
    identity = until(lambda: operator.state().ranks, "it has a rank")[0].identity
    assert identity is not None
    return identity.rank


def agents(host: Host, number: int) -> dict[int, Announcement]:
    """By pid namespace, once so many live."""
    found = until(
        lambda: cards if len(cards := announcement.living(host.folder)) == number else None,
        f"{number} agents live",
        3 * DEADLINE,
    )
    return {card.pid_namespace: card for card in found}


def namespaces_or_skip(*command: str) -> None:
    tried = subprocess.run([*command, "true"], capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"no namespaces here: {tried.stderr.strip()}")


def test_containers_that_share_a_folder_each_have_their_agent(shared: Host, start: Start) -> None:
    namespaces_or_skip(*CONTAINER, "--net")
    first = start(*CONTAINER)
    second = start(*CONTAINER, rank=1)
    # Only here it can be told apart that "all addresses" of one network are not of another.
    shared.environment["FRTOP_BIND"] = "*"
    apart = start(*CONTAINER, "--net", rank=2)
    assert [ready(process) for process in (first, second, apart)] == [1, 1, 1]
    found = agents(shared, 3)
    assert len(found) == 3
    near = [card for card in found.values() if card.in_reach]
    (far,) = (card for card in found.values() if not card.in_reach)
    assert len({card.pub for card in near}) == 2
    assert far.pub == shared.port  # in a network of its own the default is free

    operators = {card.pid_namespace: shared.operator(card) for card in near}
    ranks = {}
    for namespace, operator in operators.items():
        ranks[its_rank(operator)] = namespace
    assert set(ranks) == {0, 1}

    first.kill()  # and all that is in its namespace
    first.wait()
    gone = f"-{ranks[0]}-"
    until(
        lambda: (
            len(list(shared.folder.glob("*.ring"))) == 2
            and not any(gone in path.name for path in shared.folder.iterdir())
        ),
        "what it left is cleared away",
    )
    left = agents(shared, 2)
    assert left == {name: card for name, card in found.items() if name != ranks[0]}
    assert shown(operators[ranks[1]]) == {1}
    assert order(second, "step") == order(apart, "step") == "done"

    for process in (second, apart):
        process.kill()
        process.wait()
    until(lambda: not announcement.living(shared.folder), "nobody is left to tell of them")
    shared.spawn("--linger", "0.5")
    assert shared.agents[-1].wait(DEADLINE) == 0
    assert not list(shared.folder.iterdir())


def test_an_agent_that_is_killed_is_followed_by_another_that_finds_all(
    shared: Host, start: Start
) -> None:
    lives, dies = start(), start(rank=1)
    pids = {ready(lives), ready(dies)}
    card = agents(shared, 1)[PidNamespace.here().inode]
    os.kill(card.pid, signal.SIGSTOP)  # it must not be quicker than we are
    order(dies, "kill")
    dies.wait()
    os.kill(card.pid, signal.SIGKILL)
    litter(shared)
    until(lambda: announcement.living(shared.folder) not in ((), (card,)), "another one comes")
    operator = shared.operator(agents(shared, 1)[PidNamespace.here().inode])

    def told() -> dict[int, wire.RankUpdate] | None:
        ranks = operator.state().ranks
        found = {rank.identity.pid: rank for rank in ranks if rank.identity is not None}
        return found if pids <= set(found) and found[dies.pid].exit_info is not None else None

    ranks = until(told, "it tells of both ranks")
    ending = ranks[dies.pid].exit_info
    assert ending is not None
    assert (ending.clean, ending.exit_code, ending.signal) == (False, None, None)
    assert ranks[lives.pid].exit_info is None


def litter(host: Host) -> None:
    """What may lie around in a folder that nobody has cleared for long."""
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


def test_a_folder_that_is_cleared_is_made_anew_and_nobody_is_cut_off(
    shared: Host, start: Start
) -> None:
    before = start()
    pid = ready(before)
    card = agents(shared, 1)[PidNamespace.here().inode]
    operator = shared.operator(card)
    until(lambda: shown(operator) == {pid}, "it shows the rank")
    number = operator.update().number

    shutil.rmtree(shared.folder)
    until(lambda: announcement.living(shared.folder) == (card,), "the very same agent is back")
    assert shared.folder.stat().st_mode & 0o777 == 0o700
    assert order(before, "step") == "done"  # to its rank it is all the same
    after = start(rank=1)
    both = {pid, ready(after)}
    until(lambda: shown(operator) == both, "it shows the new rank beside the old one")
    update = operator.update()
    assert (update.instance, update.number > number) == (card.instance, True)
    assert any("was cleared by somebody" in note for note in operator.state().notes)
    for process in (before, after):
        _, complaint = process.communicate(timeout=DEADLINE)
        assert (process.returncode, complaint) == (0, "")
    until(lambda: not list(shared.folder.iterdir()), "it leaves nothing behind")


def test_without_ranks_a_cleared_folder_is_left_alone(shared: Host) -> None:
    shared.spawn("--linger", "1.5")
    until(lambda: announcement.living(shared.folder), "it announces itself")
    shutil.rmtree(shared.folder)
    assert shared.agents[-1].wait(DEADLINE) == 0
    assert not shared.folder.exists()
    shared.folder.mkdir(mode=0o700)  # for the fixture


def test_another_agent_that_took_the_cleared_folder_is_not_fought(host: Host) -> None:
    old = host.rank("wait")
    card = host.agent()
    first, operator = host.agents[0], host.operator(card)
    until(lambda: shown(operator) == {old.pid}, "it shows the rank")
    first.send_signal(signal.SIGSTOP)
    shutil.rmtree(host.folder)
    host.folder.mkdir(mode=0o700)
    second = host.agent()
    first.send_signal(signal.SIGCONT)
    until(lambda: operator.state().notes, "the first says that its folder was taken")
    new = host.rank("wait", rank=1)
    other = host.operator(second)
    until(lambda: shown(other) == {new.pid}, "the other agent has the new rank")
    assert shown(operator) == {old.pid}
    assert announcement.living(host.folder) == (second,)

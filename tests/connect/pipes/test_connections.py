"""Pipes to real shells on this host, with the real agent at the other end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from connect.pipes.operator_pipes import OperatorPipes
from frtop_probe import wire
from frtop_probe.pipe.start_script import start_script
from frtop_tui.connect.connection_events import (
    Connected,
    ConnectionFailed,
    Progressed,
    SamePlace,
    UpdateReceived,
)
from frtop_tui.connect.endpoints import PipeEndpoint
from frtop_tui.connect.pipes import connections, failures, pipe, process
from frtop_tui.connect.pipes.connections import PipeConnections
from frtop_tui.connect.pipes.payload import agent_lines
from frtop_tui.connect.pipes.places import places
from frtop_tui.connect.pipes.slurm import step_command
from frtop_tui.connect.pipes.ssh_command import program
from waiting import DEADLINE_S, wait_for

HERE = Path(__file__).parent
CLEAN = ("env", "-i", f"PATH={os.environ['PATH']}", "FRTOP_UNPREPARED=0")


@pytest.fixture
def operator() -> Iterator[OperatorPipes]:
    one = OperatorPipes()
    yield one
    one.connections.close()
    assert not children(os.getpid(), "sh")


def children(pid: int, name: str = "") -> list[int]:
    found = Path(f"/proc/{pid}/task").glob("*/children")
    pids = [int(child) for file in found for child in file.read_text().split()]
    return [pid for pid in pids if name in command_of(pid)]


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_shell_becomes_an_agent_and_is_tried_again_when_it_breaks_off(
    operator: OperatorPipes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failures, "QUICK_S", 0.2)
    monkeypatch.setattr(connections, "STEADY_S", 0.0)
    endpoint = operator.connect("here", *CLEAN, "sh")
    operator.await_event(Connected("here"))
    assert operator.connections.is_up("here")
    state = operator.ask("here", 7)
    assert isinstance(state, wire.StateResponse)
    assert state.may_act
    updates = [one.update for one in operator.events if isinstance(one, UpdateReceived)]
    assert all(one.instance == state.update.instance for one in updates)
    words = [one.text for one in operator.events if isinstance(one, Progressed)]
    assert words[0] == "starting env"
    assert words[1].startswith("Python 3.")
    (shell,) = children(os.getpid(), "-I -S")
    operator.events.clear()
    os.kill(shell, signal.SIGKILL)
    text = operator.await_failure("here")
    assert text.startswith("the connection to here broke off")
    assert not operator.connections.is_up("here")
    operator.await_event(Connected("here"))
    assert isinstance(operator.ask("here", 9), wire.StateResponse)
    (shell,) = children(os.getpid(), "-I -S")
    login_scripts = r"echo Welcome; printf '\033[1mframed\033[0m\nfrtop\nprompt> '; exec sh"
    alias = operator.connect("alias", *CLEAN, "sh", "-c", login_scripts)
    operator.await_event(SamePlace("alias", "here"))
    operator.connections.disconnect(alias)
    operator.connections.disconnect(endpoint)
    operator.await_that(lambda: not lives(shell), "the agent leaves")
    assert not operator.connections.send("here", wire.StateRequest(8))


def test_a_command_that_gives_no_shell_is_quoted(operator: OperatorPipes) -> None:
    operator.connect("none", "sh", "-c", "echo 'Your password has expired.'; exit 3")
    operator.connect("cat", "sh", "-c", "cat >/dev/null; exit 0")
    operator.connect("missing", "no-such-program")
    text = operator.await_failure("none")
    assert text.startswith("none: no shell there: sh ended: 3 (Your password has expired.)")
    assert "next: see what this says: sh -c" in text
    assert operator.await_failure("missing").startswith("missing: no-such-program is not installed")


def test_the_other_end_says_why_there_is_no_agent(operator: OperatorPipes) -> None:
    operator.connections.close()
    operator.connections = PipeConnections(start_script("/no/such/python"), agent_lines)
    operator.connect("here", *CLEAN, "sh")
    text = operator.await_failure("here")
    assert "/no/such/python" in text
    assert "--python PATH" in text


def test_commands_start_a_few_at_a_time(
    operator: OperatorPipes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "STARTING", 3)
    for number in range(8):
        operator.connect(f"node{number}", "sh", "-c", "cat >/dev/null")
    for _ in range(5):
        operator.step()
    begun = [one.host for one in operator.events if isinstance(one, Progressed)]
    assert begun == ["node0", "node1", "node2"]


def test_py_spy_is_sent_to_who_has_none_and_delays_nothing(operator: OperatorPipes) -> None:
    operator.connect("here", "env", "-i", "PATH=/usr/bin:/bin", "FRTOP_UNPREPARED=0", "sh")
    operator.await_event(Connected("here"))
    for number in range(1, 20):
        begin = time.monotonic()
        operator.ask("here", number)
        assert time.monotonic() - begin < DEADLINE_S / 2
    (only,) = operator.connections._pipes
    operator.await_that(lambda: only._tool is not None, "it is on its way")

    def is_sent() -> bool:
        return not only.process.unsent and next(only._tool or iter(()), None) is None

    operator.await_that(is_sent, "it is sent")
    assert isinstance(operator.ask("here", 99), wire.StateResponse)


def step_of(folder: Path, monkeypatch: pytest.MonkeyPatch, hosts: list[str]) -> list[PipeEndpoint]:
    srun = folder / "srun"
    srun.write_text(f'#!/bin/sh\nexec {sys.executable} {HERE}/srun_standin.py "$@"\n')
    srun.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    by_ssh = (*CLEAN, "sh")
    step = step_command("77", len(hosts))
    return [
        PipeEndpoint(host, (step, by_ssh), "srun 77", task=task) for task, host in enumerate(hosts)
    ]


def test_one_step_of_srun_reaches_all_hosts(
    operator: OperatorPipes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_place", lambda _: None)  # both are this host
    hosts = ["node0", "node1"]
    for endpoint in step_of(tmp_path, monkeypatch, hosts):
        operator.connections.connect(endpoint)
    for host in hosts:
        operator.await_event(Connected(host))
    assert len(children(os.getpid(), "srun_standin")) == 1
    instances = set()
    for number, host in enumerate(hosts, 1):
        state = operator.ask(host, number)
        assert isinstance(state, wire.StateResponse)
        instances.add(state.update.instance)
    assert len(instances) == 2


@pytest.mark.parametrize(
    ("variable", "said"),
    [
        ("SRUN_REFUSES", "error: Unable to create step for job 77: Access/permission denied"),
        pytest.param(
            "SRUN_WAITS",
            "Job 77 step creation temporarily disabled, retrying (Requested nodes busy)",
            marks=pytest.mark.long,
        ),
    ],
)
def test_where_srun_refuses_each_host_is_reached_by_itself(
    operator: OperatorPipes,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    variable: str,
    said: str,
) -> None:
    spoken = tmp_path / "spoken"
    monkeypatch.setattr(pipe, "REFUSED_S", DEADLINE_S)
    monkeypatch.setenv(variable, said.removeprefix("srun: "))
    monkeypatch.setenv("SRUN_SPOKEN", str(spoken))
    for endpoint in step_of(tmp_path, monkeypatch, ["node0"]):
        operator.connections.connect(endpoint)
    operator.await_that(spoken.exists, "srun says why")
    monkeypatch.setattr(pipe, "REFUSED_S", 1.0)
    operator.await_event(Connected("node0"))
    words = [one.text for one in operator.events if isinstance(one, Progressed)]
    assert f"by ssh: srun: {said}" in words


@pytest.mark.parametrize("way", ["--via", "FRTOP_SSH"])
def test_what_may_be_a_secret_of_the_operator_is_not_in_the_error(
    way: str, operator: OperatorPipes, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way == "FRTOP_SSH":
        monkeypatch.setenv(way, "sh -c 'exit 3' SECRET")
        command = (*program(), "node3", "sh")
        endpoint = PipeEndpoint("node3", (command,), "ssh node3")
    else:
        (place,) = places(["node3"], "sh -c 'exit 3' SECRET {host}")
        (endpoint,) = place.find()
    operator.connections.connect(endpoint)
    said = operator.await_failure("node3")
    assert "no shell there" in said
    assert "SECRET" not in said


def test_a_host_that_says_a_byte_now_and_then_is_given_up(
    operator: OperatorPipes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipe, "LONGEST_START_S", 0.5)
    drip = "(while printf .; do sleep 0.05; done) & cat > /dev/null; kill $!"
    operator.connect("slow", "sh", "-c", drip)
    assert "no agent in 0 s" in operator.await_failure("slow")


def reached_through(operator: OperatorPipes, *onward: tuple[str, ...]) -> None:
    """Hosts `node0`, ... to which a host on the way runs these commands."""
    for number, command in enumerate(onward):
        ways = ((*CLEAN, "sh"), ("false",))
        endpoint = PipeEndpoint(
            f"node{number}", ways, "", task=number, through="bastion", onward=command
        )
        operator.connections.connect(endpoint)


@pytest.mark.long
def test_one_connection_carries_a_host_that_is_late(
    operator: OperatorPipes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_place", lambda _: None)  # all are this host
    monkeypatch.setattr(pipe, "LATE_TASK_S", 0.5)
    late = (*CLEAN, "sh", "-c", "sleep 4; exec sh")
    reached_through(operator, (*CLEAN, "sh"), late, (*CLEAN, "sh"))
    for host in ("node0", "node2", "node1"):
        operator.await_event(Connected(host))
    connected = [one.host for one in operator.events if isinstance(one, Connected)]
    assert connected[-1] == "node1", "nobody waits for who is late"
    assert not [one for one in operator.events if isinstance(one, ConnectionFailed)]
    assert len(children(os.getpid(), "-I -S")) == 1
    for number in range(3):
        assert isinstance(operator.ask(f"node{number}", number + 1), wire.StateResponse)


@pytest.mark.long
def test_a_host_that_breaks_off_is_tried_again_through_the_same_connection(
    operator: OperatorPipes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_place", lambda _: None)
    monkeypatch.setattr(connections, "STEADY_S", 0.0)
    monkeypatch.setattr(failures, "QUICK_S", 0.2)
    reached_through(operator, (*CLEAN, "sh"), (*CLEAN, "sh"))
    for host in ("node0", "node1"):
        operator.await_event(Connected(host))
    (way,) = children(os.getpid(), "-I -S")
    agents = {pid for pid in children(way) if "reads jobs" in command_of(pid)}
    assert len(agents) == 2
    operator.events.clear()
    os.kill(min(agents), signal.SIGKILL)

    def is_back() -> list[str]:
        operator.step()
        return [one.host for one in operator.events if isinstance(one, Connected)]

    (host,) = wait_for(is_back, "it is reached again", pause_s=0)
    words = [one.text for one in operator.events if isinstance(one, Progressed)]
    assert words[0] == "again through bastion"
    assert children(os.getpid(), "-I -S") == [way]
    assert isinstance(operator.ask(host, 9), wire.StateResponse)


def test_a_host_that_is_not_reached_on_the_way_is_tried_as_through_a_jump_host(
    operator: OperatorPipes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failures, "QUICK_S", 0.2)
    monkeypatch.setattr(failures, "PERSON_S", 0.2)
    refused = ("sh", "-c", "echo 'Permission denied (publickey).' >&2; exit 255")
    reached_through(operator, (*CLEAN, "sh"), refused)
    operator.await_event(Connected("node0"))
    assert "node1 accepts none of the keys" in operator.await_failure("node1")

    for event in (
        Progressed("node1", "starting false"),
        Progressed("node1", "again through bastion"),
    ):
        operator.await_event(event)
    assert operator.connections.is_up("node0")


@pytest.mark.parametrize("guarded", [True, pytest.param(False, marks=pytest.mark.long)])
def test_nothing_is_left_of_an_operator_who_was_killed(guarded: bool) -> None:
    if guarded and not process.guard():
        pytest.skip("setpriv cannot arrange that")
    program = (
        "import os, sys, time\n"
        "from frtop_tui.connect.pipes import process\n"
        "from frtop_tui.connect.pipes.connections import PipeConnections\n"
        "from frtop_tui.connect.pipes.payload import agent_lines\n"
        "from frtop_tui.connect.endpoints import PipeEndpoint\n"
        "from frtop_probe.pipe.start_script import start_script\n"
        f"process.guard = lambda: {process.guard() if guarded else ()!r}\n"
        "one = PipeConnections(start_script(), agent_lines)\n"
        f"one.connect(PipeEndpoint('here', ({(*CLEAN, 'sh')!r},), ''))\n"
        + ("one.connect(PipeEndpoint('deaf', (('sleep', '1000'),), ''))\n" if guarded else "")
        + "while True:\n"
        "    for event in one.wait(50):\n"
        "        print(type(event).__name__, flush=True)\n"
    )
    killed = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert killed.stdout is not None
    assert "Connected\n" in killed.stdout
    begun = children(killed.pid)
    assert len(begun) == (2 if guarded else 1)
    killed.kill()
    killed.communicate()
    wait_for(lambda: not any(map(lives, begun)), lambda: f"{[command_of(p) for p in begun]} end")

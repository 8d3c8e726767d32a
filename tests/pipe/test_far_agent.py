"""An agent at the end of a shell, on a real job that nobody prepared: what it says, how it ends."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from frtop_probe import wire
from frtop_probe.pipe import lines
from frtop_probe.pipe.start_script import start_script
from frtop_probe.proc import processes
from pipe.far_agent import SHELL, FarAgent
from unprepared.ranks import job
from waiting import wait_for

Start = Callable[..., FarAgent]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[int]]:
    """One waits in an all_reduce, the other is elsewhere; nobody prepared them. Their pids."""
    with job("absent", tmp_path_factory.mktemp("job"), size=2) as pids:
        yield pids


@pytest.fixture
def far(tmp_path: Path) -> Iterator[Start]:
    """Starts agents; at the end there is no child of theirs, and no file."""
    home = tmp_path / "home"
    home.mkdir()
    started: list[FarAgent] = []

    def start(shell: Sequence[str] = SHELL, script: bytes | None = None, **more: str) -> FarAgent:
        folders = {"HOME": str(home), "TMPDIR": str(home), "FRTOP_DIR": str(home / "rings")}
        started.append(FarAgent(shell, script=script, **{**folders, **more}))
        return started[-1]

    yield start
    for one in started:
        children = children_of(one.pid)
        one.close()
        await_ended(children)
    assert list(home.iterdir()) == []


def children_of(pid: int) -> list[int]:
    with suppress(FileNotFoundError):
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def await_ended(pids: Sequence[int]) -> None:
    wait_for(lambda: not any(map(processes.read_stat, pids)), "none is left")


def find_ranks(agent: FarAgent, pids: Sequence[int]) -> dict[int, wire.RankUpdate]:
    """Waits until all are known with their groups; by pid."""
    seen: dict[int, wire.RankUpdate] = {}

    def has_all() -> bool:
        for one in agent.request(wire.StateRequest).update.ranks:
            if one.identity is not None and one.identity.c10d_readable and one.groups:
                seen[one.identity.pid] = one
        return seen.keys() >= set(pids)

    wait_for(has_all, lambda: f"all ranks with their groups: {sorted(seen)} of {pids}", pause_s=0.2)
    return seen


def send_py_spy(agent: FarAgent) -> None:
    found = shutil.which("py-spy") or str(Path(sys.executable).with_name("py-spy"))
    for line in lines.tool_block("py-spy", Path(found).read_bytes()):
        agent.send(line)
    agent.send(b"ping 9\n")
    assert agent.await_word("pong") == "9"


def see(agent: FarAgent, pids: Sequence[int], hello: dict[str, Any]) -> None:
    """All that a verdict needs: ranks, groups, stacks; and by which right."""
    if not hello["has_py_spy"]:
        send_py_spy(agent)
    key = find_ranks(agent, pids)[pids[0]].key
    (snapshot,) = agent.request(wire.SnapshotRequest, (key,)).snapshots
    assert [one.error for one in snapshot.dumps] == [""], snapshot.dumps
    functions = {frame.function for one in snapshot.dumps[0].threads for frame in one.frames}
    assert "all_reduce" in functions


def test_ranks_and_stacks_of_a_job_that_nobody_prepared_until_a_hangup(
    far: Start, ranks: list[int]
) -> None:
    agent = far()
    hello = agent.start()
    assert hello["python"] == ".".join(map(str, sys.version_info[:3]))
    assert (hello["uid"], hello["pid"]) == (os.getuid(), agent.pid)
    assert hello["problems"] == []
    state = agent.request(wire.StateRequest)
    assert state.may_act
    assert state.update.instance == hello["instance"]
    assert state.update.version == hello["version"] != ""
    see(agent, ranks, hello)
    first = agent.await_word("up")
    assert agent.await_word("up").number == first.number + 1
    key = find_ranks(agent, ranks)[ranks[0]].key

    def native_stacks() -> wire.NativeStacksResponse | None:
        answer = agent.request(wire.NativeStacksRequest, key)
        assert isinstance(answer, wire.NativeStacksResponse)
        # On a loaded machine py-spy may hold a rank for too long: then it lets go, as it should.
        return None if answer.dump.error == "deadline" else answer

    native = wait_for(native_stacks, "stacks that are there in time")
    assert native.dump.threads, native
    os.kill(agent.pid, signal.SIGHUP)
    assert agent.await_end() == 0


def test_a_kernel_without_files_in_memory_until_nobody_reads_any_more(far: Start) -> None:
    """The archive lies in a file that has no name then; the fixture sees that none is left."""
    script = start_script().replace(b"os.memfd_create", b"os.not_there")
    agent = far(script=script, FRTOP_READ_ONLY="1")
    assert agent.start()["problems"] == []  # programs still can be in memory here
    assert wait_for(lambda: children_of(agent.pid), "the child that reads, from that file")
    assert not agent.request(wire.StateRequest).may_act  # by the setting of that host
    assert agent.process.stdout is not None
    agent.process.stdout.close()
    wait_for(lambda: agent.process.poll() is not None, "the agent ends")
    assert agent.process.returncode == 0
    nowhere = script.replace(b"tempfile.TemporaryFile()", b'tempfile.TemporaryFile(dir="/proc")')
    refused = far(script=nowhere)
    with pytest.raises(EOFError):
        refused.start()
    ((_, said),) = [one for one in refused.seen if one[0] == "error"]
    assert "no room for a file without a name" in said["text"]
    assert "TMPDIR" in said["next"]


GO_BETWEEN = """
import subprocess, sys
sh = subprocess.Popen(["sh"], stdin=subprocess.PIPE)
while piece := sys.stdin.buffer.raw.read(65536):
    sh.stdin.write(piece)
    sh.stdin.flush()
"""


def test_the_operators_end_is_killed(far: Start) -> None:
    """As when ssh dies: the input ends. The child that reads goes with it."""
    agent = far((sys.executable, "-c", GO_BETWEEN))
    agent.start()
    pid = children_of(agent.pid)[0]
    readers = wait_for(lambda: children_of(pid), "the child that reads")
    os.kill(agent.pid, signal.SIGKILL)
    await_ended([pid, *readers])


def test_lines_for_other_tasks_and_lines_that_are_none(far: Start) -> None:
    agent = far(SLURM_PROCID="3")
    assert agent.start()["task"] == "3"
    assert not agent.request(wire.StateRequest, True).may_act
    refused = agent.request(wire.NativeStacksRequest, 1)
    assert refused.reason == "permission"
    assert "this screen may only read" in refused.text
    agent.send(b"to 2 bye\nto 2 nonsense\nto 3 ping 4\n")
    assert agent.await_word("pong") == "4"
    agent.send(b"GET / HTTP/1.1\n")
    assert "GET / HTTP/1.1" in agent.await_word("error")["text"]
    assert agent.await_end() == 1


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (b"hello\n", "not understood"),
        (b"archive 12\n", "not understood"),
        (b"archive 99999999999 " + b"0" * 64 + b"\n", "not understood"),
        (b"archive 3 " + b"0" * 64 + b"\nYWJj\n", "did not arrive"),
        (b"archive 3 " + b"0" * 64 + b"\n!!!\n", "did not arrive"),
        (b"x" * 200_000, "too long"),
    ],
)
def test_an_archive_that_is_none(far: Start, said: bytes, reason: str) -> None:
    agent = far()
    agent.await_word("boot")
    agent.send(said)
    assert reason in agent.await_word("error")["text"]
    assert agent.await_end() == 1


@pytest.mark.long
def test_a_pipe_that_is_neither_read_nor_written(far: Start) -> None:
    """As when a container's runtime keeps the pipe of a client that was killed.

    The agent neither grows nor waits: it ends half a minute after the last line.
    """
    agent = far()
    agent.start()
    begin = time.monotonic()
    wait_for(lambda: agent.process.poll() is not None, "the agent ends", 60, 0.2)
    assert agent.process.returncode == 0
    assert time.monotonic() - begin > 25


FOLDERS = ("/tmp", "/var/tmp", "/dev/shm")


@pytest.mark.skipif(os.getuid() != 0, reason="needs root")
@pytest.mark.long
@pytest.mark.parametrize("options", ["noexec", "ro,noexec"])
def test_all_of_it_is_in_memory(far: Start, ranks: list[int], options: str) -> None:
    """In a namespace of its own: folders from which nothing runs, and their content at the end."""
    mounts = "".join(f"mount -t tmpfs -o {options} none {folder} && " for folder in FOLDERS)
    agent = far(("unshare", "-m", "sh", "-c", f"{mounts} sh; find {' '.join(FOLDERS)} >&2"))
    hello = agent.start()
    assert hello["problems"] == []
    see(agent, ranks, hello)
    agent.leave()
    assert agent.errors().split() == list(FOLDERS)


@pytest.mark.long
@pytest.mark.parametrize("minor", [10, 12, 13, 14])
def test_other_pythons(far: Start, ranks: list[int], minor: int) -> None:
    """Those of this machine, if there are."""
    pythons = sorted(Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python3"))
    found = str(pythons[-1]) if pythons else shutil.which(f"python3.{minor}")
    if not found:
        pytest.skip(f"no Python 3.{minor}")
    agent = far(FRTOP_PYTHON=found)
    hello = agent.start()
    assert hello["python"].startswith(f"3.{minor}.")
    see(agent, ranks, hello)
    agent.leave()

"""The audit trail: one line for each request about a rank, and never more than a disk takes."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agent.agent_host import DEADLINE, Host, Operator
from agent.unprepared_fakes import unprepared_rank
from frtop_probe import keys, wire
from frtop_probe.agent import audit
from frtop_probe.agent.audit import Audit
from frtop_probe.agent.rank_tracker import RankTracker
from frtop_probe.agent.request_handler import RequestHandler
from frtop_probe.agent.rights import Operator as Asking
from frtop_probe.agent.rights import Rights
from frtop_probe.agent.snapshots import SnapshotTaker
from frtop_probe.features.flame.messages import SampleStacks
from frtop_probe.keys import AuthorizedKey, editing

STAMP = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"


@pytest.fixture
def system_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    path = tmp_path / "log"
    monkeypatch.setattr(audit, "SYSTEM_LOG", str(path))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as daemon:
        daemon.bind(str(path))
        daemon.setblocking(False)
        yield daemon


def about(kind: type[wire.Request], number: int, key: int) -> wire.Request:
    if issubclass(kind, wire.RanksRequest):
        return kind(number, (key, key))
    assert issubclass(kind, wire.RankRequest)
    return SampleStacks(number, key, seconds=1) if kind is SampleStacks else kind(number, key)


def kinds() -> list[type[wire.Request]]:
    """Of the core and of all features."""
    both = (wire.RankRequest, wire.RanksRequest)
    return [kind for kind in wire.declared() if issubclass(kind, both)]


def test_each_kind_of_request_about_a_rank_leaves_a_line_with_who_asked(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner_pair = keys.load(create=False)
    monkeypatch.setenv("FRTOP_KEY_FILE", str(tmp_path / "bob" / "key"))
    bob_pair = keys.load(create=True)
    editing.admit(owner_pair, AuthorizedKey(bob_pair.public, "read", "bob \x1b[2J"))
    rank = host.rank("wait")
    card = host.agent()
    owner, bob = Operator(card, owner_pair), Operator(card, bob_pair)
    host.operators += [owner, bob]
    key = owner.ranks()[0].key
    bob.state()
    assert len(kinds()) > 10
    for number, kind in enumerate(kinds(), 100):
        owner.request(about(kind, number, key))
        bob.request(about(kind, number, key))
    host.agents[-1].terminate()
    _, errors = host.agents[-1].communicate(timeout=DEADLINE)
    asked: list[type[wire.Request]] = [wire.StateRequest, *kinds()]
    for kind in asked:
        of = "all processes" if kind is wire.StateRequest else f"process {rank.pid}"
        line = rf"^frtop agent: {STAMP} {kind.__name__} of {of}, "
        refused = "refused to" if kind.acts else "asked by"
        by_bob = rf"{refused} {re.escape(bob_pair.shown)} \(bob  \[2J\)$"
        by_owner = rf"asked by {re.escape(owner_pair.shown)} \(the owner\)$"
        for who in (by_owner, by_bob):
            assert len(re.findall(line + who, errors, re.MULTILINE)) == 1, (kind, errors)
    assert "\x1b" not in errors


def test_what_repeats_is_counted_and_said_at_the_end_of_its_time(
    system_log: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []
    trail = Audit(lines.append)
    monkeypatch.setattr(audit, "WINDOW_S", 1e6)
    kinds_of_features = [f"Kind{n}" for n in range(13)]
    for _ in range(200):  # as a client that changes what it asks for
        for kind in kinds_of_features:
            trail.note(kind, range(1, 9), "asked by ann")
    assert len(lines) == len(kinds_of_features)
    assert lines[0].endswith("Kind0 of processes 1, 2, 3, 4, 5, 6, 7, 8, asked by ann")
    trail.note("Kind0", (8, 9), "asked by ann")
    assert lines[-1].endswith("Kind0 of process 9, asked by ann")
    trail.note("Kind0", (8,), "asked by ben")
    assert lines[-1].endswith("Kind0 of process 8, asked by ben")
    del lines[:]
    monkeypatch.setattr(audit, "WINDOW_S", 0.0)
    trail.note("Kind1", (1,), "asked by ben")
    # 199 times 8 processes, and one of them once more.
    assert re.search(
        r"Kind0 of processes 1, .*, 8, 1,593 more since \d\d:\d\d:\d\d, asked by ann$", lines[0]
    )
    assert lines[-1].endswith("Kind1 of process 1, asked by ben")
    assert len(lines) == len(kinds_of_features) + 1  # nothing of what ben asked for only once
    sent = []
    with suppress(BlockingIOError):
        while True:
            sent.append(system_log.recv(2048).decode())
    # 85: authpriv, notice. Lines are dropped if the daemon does not read.
    assert re.fullmatch(
        rf"<85>\w\w\w [ \d]\d \d\d:\d\d:\d\d frtop\[{os.getpid()}\]: "
        r"Kind0 of processes 1, 2, 3, 4, 5, 6, 7, 8, asked by ann",
        sent[0],
    )


def test_many_operators_and_ranks_take_bounded_memory_and_lines(
    system_log: socket.socket,
) -> None:
    del system_log
    lines: list[str] = []
    trail = Audit(lines.append)
    for number in range(audit.MAX_WINDOWS + 10):
        trail.note("Kind", (1, 1, 1), f"asked by {number}")
    assert len(trail._windows) == audit.MAX_WINDOWS
    del lines[:]
    trail.note("Kind", range(100_000, 100_130), "asked by ann")
    assert len(lines) == 3
    assert max(map(len, lines)) < 1000


async def test_repeats_are_written_when_the_agent_leaves(system_log: socket.socket) -> None:
    del system_log
    lines: list[str] = []
    trail = Audit(lines.append)
    running = asyncio.create_task(trail.run())
    await asyncio.sleep(0)
    for _ in range(3):
        trail.note("Kind", (7,), "asked by ann")
    running.cancel()
    await asyncio.wait((running,))
    assert [line.partition(" Kind ")[2][:24] for line in lines] == [
        "of process 7, asked by a",
        "of process 7, 2 more sin",
    ]


@pytest.mark.parametrize("who", ["its user", "root"])
async def test_through_a_shell_lines_go_to_the_hosts_log_and_not_into_the_pipe(
    system_log: socket.socket,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    who: str,
) -> None:
    if who == "root":
        monkeypatch.setenv("FRTOP_AS_USER", "ann")
    rank = unprepared_rank()
    tracker = RankTracker([tmp_path], guest=True)
    tracker.ranks[rank.key] = rank
    request = wire.HistoryRequest(5, rank.key, 10)
    answers: list[bytes] = []

    async def send(_: Asking, frame: bytes) -> None:
        answers.append(frame)

    channel: Any = SimpleNamespace(rights=Rights(), send=send)
    handler = RequestHandler("n", tracker, channel, lambda: None, SnapshotTaker())  # type: ignore[arg-type,return-value]
    await handler._handle(Asking(b"", b""), request)
    while not answers:
        await asyncio.sleep(0.01)
    said = system_log.recv(2048).decode()
    assert said.endswith(f": HistoryRequest of process {rank.pid}, asked by {who} through a shell")
    assert capfd.readouterr() == ("", "")


def test_no_log_daemon_and_one_that_does_not_read_hold_nobody_up(
    system_log: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(2000):  # more than its queue takes
        audit._write_system_log(f"line {number}")
    assert system_log.recv(100).endswith(b"line 0")
    monkeypatch.setattr(audit, "SYSTEM_LOG", "/no/such/log")
    audit._write_system_log("line")


def test_a_log_that_nobody_reads_holds_nobody_up() -> None:
    program = (
        "from frtop_probe.agent.interfaces import log\n"
        "for number in range(2000):\n"
        "    log(f'line {number} \\x1b \\u20ac' + 'x' * 100)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE)
    assert child.wait(DEADLINE) == 0
    assert child.stderr is not None
    with child.stderr:
        lines = child.stderr.read().splitlines()
    assert lines[0] == b"frtop agent: line 0   \\u20ac" + b"x" * 100
    assert 100 < len(lines) < 2000


def test_of_a_long_log_the_newest_half_stays_and_no_other_file_is_cut(tmp_path: Path) -> None:
    log, other = tmp_path / "agent.log", tmp_path / "other"
    program = (
        "import os, sys; from pathlib import Path\n"
        "from frtop_probe.agent.audit import bound_log\n"
        "for number in range(1000):\n"
        "    os.write(2, b'line %d\\n' % number)\n"
        "bound_log(Path(sys.argv[1]), 4000)\n"
        "os.write(2, b'after\\n')\n"
    )
    for target in (log, other):
        with target.open("ab") as errors:
            command = [sys.executable, "-c", program, str(log)]
            subprocess.run(command, stderr=errors, check=True, timeout=DEADLINE)
    lines = log.read_text().splitlines()
    assert lines[-2:] == ["line 999", "after"]
    assert all(line.startswith("line ") for line in lines[:-1])
    assert 1800 < log.stat().st_size <= 2006
    assert len(other.read_text().splitlines()) == 1001

"""The agent of all users beside real users: who sees whose ranks, and what is written down."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import zmq

from all_users.conftest import AllUsersHost, Screen
from frtop_probe import keys, wire
from frtop_probe.agent import public_card
from frtop_probe.all_users import become_user
from frtop_probe.all_users.host_figures import NOBODY
from frtop_probe.all_users.subscription import joint_key, split_key
from frtop_tui.cli.live import require_own
from frtop_tui.errors import NotOurs
from waiting import DEADLINE_S, wait_for


def shown(pair: tuple[bytes, bytes]) -> str:
    return keys.format_public(pair[0])


def uid_of(pid: int) -> int:
    return Path(f"/proc/{pid}").stat().st_uid


def readers_of(agent: int, *users: int) -> dict[int, int]:
    """Waits until the processes below the agent belong to these users; returns pid and uid of each.

    Each begins as root. The one that reads the host alone ends as nobody, and is left out.
    """
    found: dict[int, int] = {}

    def are_theirs() -> bool:
        found.clear()
        todo = [agent]
        with suppress(FileNotFoundError):  # one has ended since
            while todo:
                pid = todo.pop()
                children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
                todo += map(int, children)
                found.update((int(child), uid_of(int(child))) for child in children)
            return sorted(uid for uid in found.values() if uid != NOBODY) == sorted(users)
        return False

    wait_for(are_theirs, "the readers' users")
    return {pid: uid for pid, uid in found.items() if uid != NOBODY}


def test_a_key_sees_the_ranks_of_the_users_that_the_list_gives_it(
    all_users: AllUsersHost,
) -> None:
    ann, ben = all_users.users
    pids = {user: all_users.start_rank(user) for user in all_users.users}
    bob, carol, eve = (zmq.curve_keypair() for _ in range(3))
    all_users.admit(f"{shown(bob)} read {ann} bob", f"{shown(carol)} act {ann},{ben} carol on call")
    all_users.start_agent()

    theirs, everybody = all_users.screen(bob), all_users.screen(carol)
    of_ann, of_all = theirs.users_ranks(1), everybody.users_ranks(2)
    assert list(of_ann) == [pids[ann]]
    assert set(of_all) == set(pids.values())
    assert of_all[pids[ann]] == of_ann[pids[ann]]

    # Who reads is not root any more: each process has the user of the ranks that it reads.
    assert all_users.agent is not None
    readers = readers_of(all_users.agent.pid, *map(uid_of, pids.values()))

    # Updates follow, of that user only, and nothing is published.
    process, _ = split_key(of_ann[pids[ann]])

    def told() -> list[int]:
        return [rank.key for update in theirs.updates for rank in update.ranks]

    wait_for(lambda: theirs.receive() and len(told()) > 3, "updates", pause_s=0)
    assert {split_key(key)[0] for key in told()} == {process}
    assert not theirs.published.poll(0)

    stays_unprivileged(readers)
    refusals_and_looks(all_users, theirs, of_ann[pids[ann]], of_all[pids[ben]])

    # The next to take a chosen id would get what is meant for this connection.
    chosen = all_users.screen(bob, routing_id=b"mine")
    chosen.asking.send(wire.to_frame(wire.StateRequest(1, follow=True)))
    refused = chosen.receive()
    assert isinstance(refused, wire.Error)
    assert refused.reason == "permission"

    stranger = all_users.screen(eve)
    stranger.asking.send(wire.to_frame(wire.StateRequest(1)))
    assert not stranger.asking.poll(500)

    # Their rank was never said to be there.
    heard = b"".join(wire.encode(update) for update in theirs.updates)
    assert ben.encode() not in heard


def stays_unprivileged(readers: dict[int, int]) -> None:
    """No capability is left, none can come back, and no group of root's."""
    assert readers
    for pid, uid in readers.items():
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        status = {name: text.split() for name, _, text in (line.partition(":") for line in lines)}
        assert status["Uid"] == [str(uid)] * 4
        kept = 1 << become_user.SYS_PTRACE if become_user.yama_forbids() else 0
        assert {int(status[name][0], 16) for name in ("CapPrm", "CapEff", "CapAmb")} == {kept}
        assert status["NoNewPrivs"] == ["1"]
        assert "0" not in status["Groups"]


def refusals_and_looks(
    all_users: AllUsersHost, theirs: Screen, own_key: int, hidden_key: int
) -> None:
    """What bob, who may read ann's ranks, gets; and the line of each request."""
    ann, ben = all_users.users
    look = theirs.ask(wire.SnapshotRequest(0, (own_key, hidden_key), stacks=False))
    assert isinstance(look, wire.SnapshotResponse)
    assert [one.key for one in look.snapshots] == [own_key]
    history = theirs.ask(wire.HistoryRequest(0, own_key))
    assert isinstance(history, wire.HistoryResponse)
    assert history.key == own_key
    assert history.history.rows
    acts: list[wire.Request] = [
        wire.TensorsRequest(0, own_key), wire.DataRequest(0, own_key, 1, 0, 0, 8),
        wire.RasRequest(0, own_key), wire.NativeStacksRequest(0, own_key),
    ]  # fmt: skip
    for act in acts:
        refused = theirs.ask(act)
        assert isinstance(refused, wire.Error)
        assert refused.reason == "permission"
        assert f"only read the ranks of user {ann}" in refused.text
    for key in (hidden_key, joint_key(60, 1)):  # not there, as far as this key is told
        gone = theirs.ask(wire.TensorsRequest(0, key))
        assert isinstance(gone, wire.Error)
        assert gone.reason == "gone"
        assert ben not in gone.text
    lines = [line for line in all_users.audited() if line["who"] == "bob"]
    assert [
        (line["request"], line["right"], line["allowed"], [one["user"] for one in line["ranks"]])
        for line in lines
    ] == [
        ("connect", "read", True, []),
        ("look", "", False, [ben]),
        ("look", "read", True, [ann]),
        ("history", "read", True, [ann]),
        ("tensors", "read", False, [ann]),
        ("data", "read", False, [ann]),
        ("ras", "read", False, [ann]),
        ("native", "read", False, [ann]),
        ("tensors", "", False, [ben]),
    ]
    assert lines[2]["ranks"] == [{"user": ann, "pid": all_users.pids[ann], "rank": 0}]
    assert lines[2]["key"].startswith("frtop_")


def sent(logger: socket.socket) -> dict[str, Any]:
    """The next line at the logger's."""
    head, _, line = logger.recv(1 << 16).decode().partition(": ")
    assert head.startswith("<86>frtop-audit["), head
    found: dict[str, Any] = json.loads(line)
    return found


def test_the_audit_goes_to_syslog_as_well_and_what_nobody_takes_is_refused(
    all_users: AllUsersHost,
) -> None:
    ann, _ = all_users.users
    pid = all_users.start_rank(ann)
    bob = zmq.curve_keypair()
    all_users.admit(f"{shown(bob)} read {ann} bob")
    logger = all_users.logger()
    all_users.start_agent("--audit", f"syslog:{all_users.folder / 'logger'}")
    screen = all_users.screen(bob)
    (key,) = screen.users_ranks(1).values()
    assert isinstance(screen.ask(wire.HistoryRequest(0, key)), wire.HistoryResponse)
    lines = [sent(logger), sent(logger)]
    assert lines == [line for line in all_users.audited() if line["who"] == "bob"]
    assert lines[1]["ranks"] == [{"user": ann, "pid": pid, "rank": 0}]
    logger.close()
    refused = screen.ask(wire.HistoryRequest(0, key))
    assert isinstance(refused, wire.Error)
    assert "logger: Connection refused" in refused.text
    assert len(all_users.audited()) == 2, "what is in the file was served"


def test_an_agent_that_shall_log_where_nobody_listens_does_not_start(
    all_users: AllUsersHost,
) -> None:
    agent = all_users.spawn_agent("--audit", "syslog:/nowhere/log")
    _, said = agent.communicate(timeout=DEADLINE_S)
    assert agent.returncode == 1
    assert said == (
        "frtop agent: /nowhere/log: No such file or directory\n"
        "start syslog, or leave out --audit syslog\n"
    )


def test_a_list_that_changes_holds_at_once_and_a_broken_one_admits_nobody_new(
    all_users: AllUsersHost,
) -> None:
    ann, ben = all_users.users
    pids = {user: all_users.start_rank(user) for user in all_users.users}
    bob = zmq.curve_keypair()
    all_users.admit(f"{shown(bob)} act {ann},{ben} bob")
    all_users.start_agent()
    screen = all_users.screen(bob)
    ranks = screen.users_ranks(2)
    acted = screen.ask(wire.TensorsRequest(0, ranks[pids[ben]]))  # reaches the rank
    assert isinstance(acted, wire.TensorsResponse)

    careful = all_users.screen(bob)
    assert len(careful.state(read_only=True).ranks) == 2
    refused = careful.ask(wire.TensorsRequest(0, ranks[pids[ben]]))  # gave it up by itself
    assert isinstance(refused, wire.Error)
    assert "started with --read-only" in refused.text

    all_users.admit(f"{shown(bob)} act {ann} bob", "nonsense")
    assert set(screen.users_ranks(2)) == set(pids.values())  # the last good list
    before = screen.state()
    screen.updates.clear()
    all_users.admit(f"{shown(bob)} act {ann} bob")
    wait_for(lambda: screen.receive() and has_gap(before, screen.updates), "a gap", pause_s=0)
    assert list(screen.users_ranks(1)) == [pids[ann]]
    refused = screen.ask(wire.TensorsRequest(0, ranks[pids[ben]]))
    assert isinstance(refused, wire.Error)
    assert refused.reason == "gone"
    all_users.admit()
    refused = screen.ask(wire.StateRequest(0))
    assert isinstance(refused, wire.Error)
    assert refused.reason == "permission"


def has_gap(state: wire.Update, updates: list[wire.Update]) -> bool:
    """Whether a screen would ask for the state again."""
    numbers = [state.number, *(update.number for update in updates)]
    return any(after != before + 1 for before, after in pairwise(numbers))


def test_without_an_audit_nothing_is_looked_at_and_nobody_reads_while_nobody_looks(
    all_users: AllUsersHost,
) -> None:
    ann, _ = all_users.users
    pid = all_users.start_rank(ann)
    bob = zmq.curve_keypair()
    all_users.admit(f"{shown(bob)} act {ann} bob")
    all_users.start_agent()
    assert all_users.agent is not None
    readers_of(all_users.agent.pid)  # none is left as root
    screen = all_users.screen(bob)
    key = screen.users_ranks(1)[pid]
    audit = all_users.folder / "log" / "audit.jsonl"
    audit.chmod(0o644)  # as if somebody had touched it
    requests: list[wire.Request] = [wire.SnapshotRequest(0, (key,)), wire.HistoryRequest(0, key)]
    for request in requests:
        refused = screen.ask(request)
        assert isinstance(refused, wire.Error)
        assert "the audit cannot be written" in refused.text
    other = all_users.screen(bob)
    assert isinstance(other.ask(wire.StateRequest(0)), wire.Error)
    audit.chmod(0o600)
    assert isinstance(screen.ask(wire.HistoryRequest(0, key)), wire.HistoryResponse)


@pytest.mark.long
def test_a_users_process_that_is_killed_is_replaced(all_users: AllUsersHost) -> None:
    ann, _ = all_users.users
    pid = all_users.start_rank(ann)
    bob = zmq.curve_keypair()
    all_users.admit(f"{shown(bob)} read {ann} bob")
    all_users.start_agent()
    screen = all_users.screen(bob)
    before = screen.users_ranks(1)[pid]
    assert all_users.agent is not None
    (reader,) = readers_of(all_users.agent.pid, uid_of(pid))
    os.kill(reader, 9)
    end = time.monotonic() + 20
    while time.monotonic() < end:
        found = screen.users_ranks(1)
        if found[pid] != before:
            break
        time.sleep(0.1)
    assert split_key(found[pid])[0] != split_key(before)[0]


def test_two_of_them_do_not_run_on_one_host(all_users: AllUsersHost) -> None:
    all_users.start_agent()
    second = all_users.spawn_agent()
    _, said = second.communicate(timeout=20)
    assert second.returncode == 1
    assert "runs on this host already" in said


def test_a_screen_on_this_host_finds_the_key_of_roots_agent_by_itself(
    all_users: AllUsersHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann, _ = all_users.users
    all_users.start_rank(ann)
    key_file = all_users.folder / "bob" / "key"
    monkeypatch.setenv(keys.FILE_VARIABLE, str(key_file))
    bob = keys.load(create=True)
    all_users.admit(f"{bob.shown} read {ann} bob")
    all_users.start_agent()
    card = public_card.read()
    assert card is not None
    done = subprocess.run(
        [sys.executable, "-m", "frtop_tui", "jobs", *card.connect.split()], capture_output=True,
        text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert f"by root's list our key sees the ranks of {ann}" in done.stdout


def test_a_process_of_another_user_is_not_looked_at_and_the_error_says_whom_to_ask(
    all_users: AllUsersHost,
) -> None:
    ann, _ = all_users.users
    pid = all_users.start_rank(ann)
    with pytest.raises(NotOurs) as caught:
        require_own(pid)
    assert caught.value.text == f"process {pid} is of user {ann}: not looked at"
    assert f"runuser -u {ann}" in caught.value.next_step
    require_own(os.getpid())
    require_own(2**22)  # nobody's

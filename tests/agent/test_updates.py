"""The state, and the numbered updates that continue it."""

from __future__ import annotations

import os
import signal
import time

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.host import Host, until
from agent.ringmaker import RingMaker
from frtop_probe import wire
from frtop_probe.agent import announcement
from frtop_probe.ring.layout import Side, StatusCell


def test_updates_continue_the_state_without_a_gap(host: Host) -> None:
    rank = host.rank("wait")
    operator = host.operator(host.agent())
    first = operator.update()
    state = operator.state()
    assert state.full
    assert state.instance == first.instance
    assert state.number >= first.number
    following = [operator.update().number for _ in range(3)]
    assert following == list(range(first.number + 1, first.number + 4))
    (told,) = state.ranks
    assert told.identity is not None
    assert (told.identity.pid, told.identity.rank) == (rank.pid, 0)
    assert told.identity.job.world_size == 8
    assert told.groups[0].ranks == "0-7"
    assert told.process is not None
    assert told.process.syscall == "read"


def test_a_rank_that_starts_later_is_told_whole(host: Host) -> None:
    operator = host.operator(host.agent())
    assert operator.state().ranks == ()
    rank = host.rank("wait", rank=5)
    told = next(operator.rank_updates(1))
    assert told.identity is not None
    assert (told.identity.pid, told.identity.rank) == (rank.pid, 5)


def test_the_last_op_is_told_once_its_group_is_quiet(host: Host) -> None:
    host.rank("wait")
    operator = host.operator(host.agent())
    fronts = [
        front for _ in range(5) for rank in operator.update().ranks for front in rank.group_progress
    ]
    last = operator.state().ranks[0].group_progress[0].last
    assert last is not None
    assert last.signature is not None
    assert (last.number, last.signature.kind, last.signature.reduce) == (1, "all_reduce", "sum")
    assert last.site == wire.Site("/srv/train.py", 12, "train")
    assert sum(front.last is not None for front in fronts) <= 1


def test_an_op_that_stays_pending_is_told_once(host: Host) -> None:
    rank = host.rank("wait")
    operator = host.operator(host.agent())
    operator.state()
    rank.order("op")
    told = next(u.pending for u in operator.rank_updates(1) if u.pending)
    assert [op.number for op in told] == [2]
    assert told[0].pending
    later = [rank for _ in range(3) for rank in operator.update().ranks]
    assert [rank.pending for rank in later if rank.pending is not None] == []
    assert operator.state().ranks[0].pending == told


@pytest.mark.parametrize(
    ("order", "ending"),
    [
        ("exit 3", wire.ExitInfo(0, exit_code=3)),
        ("kill 9", wire.ExitInfo(0, signal=9)),
        ("kill 6", wire.ExitInfo(0, signal=6)),
        ("stop", wire.ExitInfo(0, exit_code=0, clean=True)),
        ("exit 0", wire.ExitInfo(0, exit_code=0)),
    ],
)
def test_how_a_rank_ended_is_seen(host: Host, order: str, ending: wire.ExitInfo) -> None:
    rank = host.rank("wait")
    operator = host.operator(host.agent())
    operator.state()
    before = time.monotonic_ns()
    rank.order(order)
    seen = operator.ending(1)
    assert msgspec.structs.replace(seen, at_ns=0) == ending
    assert abs(seen.at_ns - before) < 5e9
    state = operator.state().ranks[0]
    assert state.exit_info == seen
    assert state.process is None


def test_an_ending_is_known_though_the_parent_reaped_at_once(host: Host) -> None:
    rank = host.rank("wait")
    operator = host.operator(host.agent())
    operator.state()
    rank.order("exit 7")
    rank.process.wait()
    assert operator.ending(1).exit_code == 7


def test_a_ring_of_a_dead_process_is_shown_as_ended(host: Host) -> None:
    rank = host.rank("wait")
    rank.kill()
    state = host.operator(host.agent()).state()
    ending = state.ranks[0].exit_info
    assert ending is not None
    assert (ending.exit_code, ending.signal, ending.clean) == (None, None, False)


def test_the_last_ops_of_a_rank_that_died_before_it_was_found_are_told(host: Host) -> None:
    rank = host.rank("wait")
    rank.order("op")
    assert rank.line() == "done"
    rank.kill()
    (told,) = host.operator(host.agent()).state().ranks
    assert told.exit_info is not None
    assert told.pending is not None
    assert [op.number for op in told.pending] == [2]
    last = told.group_progress[0].last
    assert last is not None
    assert (last.number, last.pending) == (2, True)
    assert told.exit_info.at_ns >= last.issued_ns


def test_the_last_op_of_a_rank_that_dies_of_it_is_told(host: Host) -> None:
    rank = host.rank("wait")
    operator = host.operator(host.agent())
    operator.state()
    rank.order("op")
    assert rank.line() == "done"
    rank.kill()
    operator.ending(1)
    (told,) = operator.state().ranks
    last = told.group_progress[0].last
    assert last is not None
    assert (last.number, last.pending) == (2, True)
    assert told.pending is not None
    assert [op.number for op in told.pending] == [2]


def test_a_pid_that_was_given_away_is_no_living_rank(host: Host) -> None:
    RingMaker(host.folder, start_ticks=1)
    ranks = host.operator(host.agent()).state().ranks
    assert [rank.exit_info is not None for rank in ranks] == [True]


def test_only_rings_of_this_namespace_and_boot_are_adopted(host: Host) -> None:
    RingMaker(host.folder, start_ticks=1, namespace=1)
    RingMaker(host.folder, start_ticks=2, boot_id=bytes(16))
    state = host.operator(host.agent()).state()
    assert state.ranks == ()


def test_a_ring_that_cannot_be_read_is_one_note(host: Host) -> None:
    (host.folder / "1-1.ring").write_bytes(b"x" * 4096)
    os.mkfifo(host.folder / "2-2.ring")
    (host.folder / "3-3.ring").symlink_to("/dev/zero")
    operator = host.operator(host.agent())
    state = until(lambda: s if (s := operator.state()).notes else None, "a note")
    assert [note for note in state.notes if "1-1.ring" in note] == list(state.notes)


NONSENSE: tuple[object, ...] = (
    None,
    7,
    [],
    ["x"],
    "x" * 9000,
    {"kind": 5, "job": 3, "ranks": []},
    {"name": "\udcff", "description": "\ud800", "timeout_s": 2**80, "epoch": -(2**90)},
    {"kind": "\udcff", "root": 2**70, "in_splits": [2**70], "inputs": [["\udcff", [-1], 2**70]]},
    {"kind": "x", "argv": ["\udc80"], "rank": 2**70, "job": {"run_id": "\udcff"}, "text": "\udcff"},
    {"kind": "\udcff", "frames": [["\udcff", "\udcff", 2**80], 5], "main": True, "at_ns": 2**70},
    "\udcff",
    ["\udcff", 2**80, "\udcff"],
)


def test_rings_full_of_nonsense_do_not_end_the_agent(host: Host) -> None:
    for number, payload in enumerate(NONSENSE):
        ring = RingMaker(host.folder, start_ticks=number + 1)
        for kind in (*Side, 99):
            ring.side(kind, 1, payload)
        ring.op()
        ring.op()
    wild = RingMaker(host.folder)
    for cell in StatusCell:
        if cell is not StatusCell.SIDE_USED:
            wild.cells[cell] = -(2**62) if cell % 2 else 2**40
    operator = host.operator(host.agent())
    state = operator.state()
    assert len(state.ranks) == len(NONSENSE) + 1
    assert state.notes == ()
    keys = [rank.key for rank in state.ranks]
    assert len(operator.look(*keys, stacks=False, ops=10)) == len(keys)


def test_a_ring_made_anew_in_the_same_file_is_another_rank(host: Host) -> None:
    old = RingMaker(host.folder)
    operator = host.operator(host.agent())
    assert [rank.key for rank in operator.state().ranks] == [1]
    old.cells[StatusCell.SIDE_USED] = 0
    until(lambda: [r.key for r in operator.state().ranks] == [2], "it is adopted anew")


def test_a_stopped_rank_is_seen_as_stopped(host: Host) -> None:
    rank = host.rank("wait")
    operator = host.operator(host.agent())
    operator.state()
    rank.process.send_signal(signal.SIGSTOP)
    told = next(u.process for u in operator.rank_updates(1) if u.process and u.process.state == "T")
    assert told.pid == rank.pid


@pytest.fixture
def busy_agent(host: Host) -> Host:
    host.rank("wait")
    host.agent()
    return host


def test_nonsense_from_a_friend_does_not_end_the_agent(busy_agent: Host) -> None:
    card = announcement.read(busy_agent.folder)
    assert card is not None
    operator = busy_agent.operator(card)
    known = wire.packed(wire.SnapshotRequest(1, (1,), ops=3))
    frames = st.one_of(
        st.just(wire.PROTOCOL),
        st.binary(max_size=200),
        st.integers(0, len(known)).map(lambda n: known[:n]),
        st.builds(
            lambda tag, *rest: wire.PROTOCOL + msgspec.msgpack.encode([tag, *rest]),
            st.sampled_from(["state", "look", "x"]),
            st.integers(-(2**63), 2**64 - 1),
            st.one_of(st.integers(), st.lists(st.integers(-5, 2**64 - 1))).filter(
                lambda v: isinstance(v, list) or -(2**63) <= v < 2**64
            ),
            st.booleans(),
            st.integers(-(2**63), 2**64 - 1),
        ),
    )

    @settings(max_examples=300, deadline=None)
    @given(st.lists(frames, min_size=1, max_size=4))
    def send(message: list[bytes]) -> None:
        operator.dealer.send_multipart(message)

    send()
    fresh = busy_agent.operator(card)
    assert fresh.state().ranks[0].key == 1


def test_a_request_that_is_not_understood_is_answered_with_a_sentence(busy_agent: Host) -> None:
    card = announcement.read(busy_agent.folder)
    assert card is not None
    operator = busy_agent.operator(card)
    operator.dealer.send(wire.PROTOCOL + b"\x93\xa4what\x01\x02")
    answer = wire.decode_response(wire.unpacked(operator.dealer.recv()))
    assert isinstance(answer, wire.Error)
    assert "version" in answer.text

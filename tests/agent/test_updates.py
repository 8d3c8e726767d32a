"""The full state, and the numbered updates that continue it."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import suppress

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.agent_host import Host
from agent.ring_builder import RingBuilder
from frtop_probe import keys, wire
from frtop_probe.agent.lifecycle import describe, make_service
from frtop_probe.agent.options import Options
from frtop_probe.agent.rank_tracker import RankTracker
from frtop_probe.agent.sockets import open_sockets
from frtop_probe.ring.layout import Side, StatusCell
from frtop_tui.job.state import JobState
from waiting import DEADLINE_S, wait_for


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
    (sent,) = state.ranks
    assert sent.identity is not None
    assert (sent.identity.pid, sent.identity.rank) == (rank.pid, 0)
    assert sent.identity.job.world_size == 8
    assert sent.groups[0].ranks == "0-7"
    assert sent.process is not None
    assert sent.process.syscall == "read"


def test_a_rank_that_starts_later_is_sent_in_full(host: Host) -> None:
    operator = host.operator(host.agent())
    assert operator.state().ranks == ()
    rank = host.rank("wait", rank=5)
    sent = next(operator.rank_updates(1))
    assert sent.identity is not None
    assert (sent.identity.pid, sent.identity.rank) == (rank.pid, 5)


@pytest.mark.parametrize(
    ("order", "exit_info"),
    [
        ("exit 3", wire.ExitInfo(0, exit_code=3)),
        ("kill 9", wire.ExitInfo(0, signal=9)),
        ("kill 6", wire.ExitInfo(0, signal=6)),
        ("stop", wire.ExitInfo(0, exit_code=0, clean=True)),
        ("exit 0", wire.ExitInfo(0, exit_code=0)),
    ],
)
def test_the_exit_info_of_a_rank(host: Host, order: str, exit_info: wire.ExitInfo) -> None:
    rank = host.rank("wait")
    operator = host.operator(host.agent())
    operator.state()
    before = time.monotonic_ns()
    rank.send_command(order)
    seen = operator.exit_info(1)
    assert msgspec.structs.replace(seen, at_ns=0) == exit_info
    assert abs(seen.at_ns - before) < DEADLINE_S * 1e9
    state = operator.state().ranks[0]
    assert state.exit_info == seen
    assert state.process is None


def test_the_exit_code_is_known_after_the_parent_reaped(host: Host) -> None:
    rank = host.rank("wait")
    operator = host.operator(host.agent())
    operator.state()
    rank.send_command("exit 7")
    rank.process.wait()
    assert operator.exit_info(1).exit_code == 7


def test_the_ring_of_a_dead_process_has_an_exit_info(host: Host) -> None:
    rank = host.rank("wait")
    rank.kill()
    state = host.operator(host.agent()).state()
    exit_info = state.ranks[0].exit_info
    assert exit_info is not None
    assert (exit_info.exit_code, exit_info.signal, exit_info.clean) == (None, None, False)


@pytest.mark.parametrize("seen", [False, True])
def test_the_last_op_of_a_rank_that_died_is_sent(host: Host, seen: bool) -> None:
    rank = host.rank("wait")
    operator = host.operator(host.agent()) if seen else None
    if operator is not None:
        operator.state()
    rank.send_command("op")
    assert rank.read_line() == "done"
    rank.kill()
    if operator is not None:
        operator.exit_info(1)
    (sent,) = (operator or host.operator(host.agent())).state().ranks
    assert sent.exit_info is not None
    assert sent.pending is not None
    assert [op.number for op in sent.pending] == [2]
    last = sent.group_progress[0].last
    assert last is not None
    assert (last.number, last.pending) == (2, True)
    assert sent.exit_info.at_ns >= last.issued_ns


def test_unreadable_rings_give_one_note(host: Host) -> None:
    (host.folder / "1-1.ring").write_bytes(b"x" * 4096)
    os.mkfifo(host.folder / "2-2.ring")
    (host.folder / "3-3.ring").symlink_to("/dev/zero")
    operator = host.operator(host.agent())
    state = wait_for(lambda: s if (s := operator.state()).notes else None, "a note")
    assert [note for note in state.notes if "1-1.ring" in note] == list(state.notes)


MALFORMED: tuple[object, ...] = (
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


async def test_a_note_about_the_host_that_is_over_is_taken_back(host: Host) -> None:
    """Ranks of another user that have ended are no longer "not looked at"."""
    options = Options("127.0.0.1", host.port, unprepared=False)
    tracker, pair = RankTracker([host.folder]), keys.load(create=False)
    sockets = open_sockets(options, pair)
    service = make_service(options, tracker, sockets)
    serving = asyncio.create_task(service.run())
    operator, state = host.operator(describe(service, sockets, pair.public)), JobState()

    async def shown_after_change() -> tuple[str, ...]:
        for _ in range(3):  # the update that was on its way, the change, one without news
            state.apply("h", await asyncio.to_thread(operator.update), time.monotonic_ns())
        (view,) = state.frame(time.monotonic_ns(), time.time_ns()).hosts
        return view.notes

    try:
        await asyncio.to_thread(operator.update)  # it is connected
        state.apply("h", await asyncio.to_thread(operator.state), time.monotonic_ns())
        tracker.set_unprepared_notes(("3 ranks of user bob: not looked at",))
        assert await shown_after_change() == tracker.notes
        tracker.set_unprepared_notes(())
        assert await shown_after_change() == ()
    finally:
        serving.cancel()
        with suppress(asyncio.CancelledError):
            await serving
        sockets.close()


def test_malformed_rings_do_not_end_the_agent(host: Host) -> None:
    for number, payload in enumerate(MALFORMED):
        ring = RingBuilder(host.folder, start_ticks=number + 1)
        for kind in (*Side, 99):
            ring.add_entry(kind, 1, payload)
        ring.op()
        ring.op()
    wild = RingBuilder(host.folder)
    for cell in StatusCell:
        if cell is not StatusCell.SIDE_USED:
            wild.cells[cell] = -(2**62) if cell % 2 else 2**40
    operator = host.operator(host.agent())
    state = operator.state()
    assert len(state.ranks) == len(MALFORMED) + 1
    assert state.notes == ()
    keys = [rank.key for rank in state.ranks]
    assert len(operator.snapshots(*keys, stacks=False, ops=10)) == len(keys)


def test_malformed_requests_do_not_end_the_agent(host: Host) -> None:
    host.rank("wait")
    card = host.agent()
    operator = host.operator(card)
    known = wire.to_frame(wire.SnapshotRequest(1, (1,), ops=3))
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
    assert host.operator(card).state().ranks[0].key == 1


def test_an_unknown_request_gets_an_error(host: Host) -> None:
    operator = host.operator(host.agent())
    operator.dealer.send(wire.PROTOCOL + b"\x93\xa4what\x01\x02")
    response = wire.decode_response(wire.from_frame(operator.dealer.recv()))
    assert isinstance(response, wire.Error)
    assert "version" in response.text

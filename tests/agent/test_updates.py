"""The full state, and the numbered updates that continue it."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from agent.agent_host import Host
from frtop_probe import keys, wire
from frtop_probe.agent.lifecycle import describe, make_service
from frtop_probe.agent.options import Options
from frtop_probe.agent.rank_tracker import RankTracker
from frtop_probe.agent.sockets import open_sockets
from frtop_tui.job.state import JobState
from waiting import DEADLINE_S, wait_for


def test_updates_continue_the_state_without_a_gap(host: Host) -> None:
    operator = host.operator(host.agent())
    assert operator.state().ranks == ()
    rank = host.rank("wait", rank=5)
    started = next(operator.rank_updates(1))
    first = operator.update()
    state = operator.state()
    assert state.full
    assert state.instance == first.instance
    assert state.number >= first.number
    following = [operator.update().number for _ in range(3)]
    assert following == list(range(first.number + 1, first.number + 4))
    (sent,) = state.ranks
    assert sent.identity is not None
    assert started.identity == sent.identity
    assert (sent.identity.pid, sent.identity.rank) == (rank.pid, 5)
    assert sent.identity.job.world_size == 8
    assert sent.groups[0].ranks == "0-7"
    assert sent.process is not None
    assert sent.process.syscall == "read"


def test_the_exit_infos_of_ranks(host: Host) -> None:
    expected = {
        "exit 3": wire.ExitInfo(0, exit_code=3),
        "kill 9": wire.ExitInfo(0, signal=9),
        "kill 6": wire.ExitInfo(0, signal=6),
        "stop": wire.ExitInfo(0, exit_code=0, clean=True),
        "exit 0": wire.ExitInfo(0, exit_code=0),
        "exit 7": wire.ExitInfo(0, exit_code=7),
    }
    ranks = [host.rank("wait", rank=number) for number in range(len(expected))]
    operator = host.operator(host.agent())
    wait_for(lambda: len(operator.state().ranks) == len(ranks), "the agent tracks all ranks")
    before = time.monotonic_ns()
    for rank, order in zip(ranks, expected, strict=True):
        rank.send_command(order)
    ranks[-1].process.wait()  # reaped before the agent looks
    seen: dict[int, wire.ExitInfo] = {}
    while len(seen) < len(ranks):
        updated = operator.update().ranks
        seen |= {rank.key: rank.exit_info for rank in updated if rank.exit_info is not None}
    orders = {rank.pid: order for rank, order in zip(ranks, expected, strict=True)}
    for sent in operator.state().ranks:
        assert sent.identity is not None
        exit_info = seen[sent.key]
        assert msgspec.structs.replace(exit_info, at_ns=0) == expected[orders[sent.identity.pid]]
        assert abs(exit_info.at_ns - before) < DEADLINE_S * 1e9
        assert (sent.exit_info, sent.process) == (exit_info, None)


def test_the_last_op_of_ranks_that_died_is_sent(host: Host) -> None:
    """Of one that had ended before the agent began, and of one that it has seen alive."""
    ended, seen = (host.rank("wait", rank=number) for number in range(2))
    ended.do("op")
    ended.kill()
    operator = host.operator(host.agent())
    wait_for(lambda: len(operator.state().ranks) == 2, "the agent tracks both ranks")
    seen.do("op")
    seen.kill()
    wait_for(lambda: all(rank.exit_info for rank in operator.state().ranks), "both ends are known")
    for sent in operator.state().ranks:
        assert sent.identity is not None
        exit_info = sent.exit_info
        assert exit_info is not None
        if sent.identity.pid == ended.pid:
            assert (exit_info.exit_code, exit_info.signal, exit_info.clean) == (None, None, False)
        assert sent.pending is not None
        assert [op.number for op in sent.pending] == [2]
        last = sent.group_progress[0].last
        assert last is not None
        assert (last.number, last.pending) == (2, True)
        assert exit_info.at_ns >= last.issued_ns


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
        tracker.none_found = True
        assert await shown_after_change() == ()
        (host_view,) = state.frame(time.monotonic_ns(), time.time_ns()).hosts
        assert host_view.none_found
    finally:
        serving.cancel()
        with suppress(asyncio.CancelledError):
            await serving
        sockets.close()


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

    @given(st.lists(frames, min_size=1, max_size=4))
    def send(message: list[bytes]) -> None:
        operator.dealer.send_multipart(message)

    send()
    operator = host.operator(card)
    operator.dealer.send(wire.PROTOCOL + b"\x93\xa4what\x01\x02")
    response = wire.decode_response(wire.from_frame(operator.dealer.recv()))
    assert isinstance(response, wire.Error)
    assert "version" in response.text
    assert host.operator(card).state().ranks[0].key == 1

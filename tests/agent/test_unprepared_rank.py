"""A rank without a recorder: the state of c10d in, updates out. No process is read."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from msgspec import structs

from agent.unprepared_fakes import (
    SECOND,
    backend,
    c10d,
    candidate,
    group,
    job,
    look,
    unprepared_rank,
    work,
)
from frtop_probe import wire
from frtop_probe.agent.unprepared.groups import (
    MAX_GONE,
    MAX_PENDING,
    STALE_NS,
    numbered_ops,
    place_of,
)
from frtop_probe.agent.unprepared.unprepared_rank import MAX_PENDING_OF_RANK, UnpreparedRank
from frtop_probe.proc.exit_status import ExitStatus
from frtop_probe.proc.memory import NO_RIGHT, REPLACED
from frtop_probe.unprepared.c10d_backends import NO_PENDING
from frtop_probe.unprepared.c10d_state import NO_GROUPS
from frtop_probe.unprepared.model import Backend, FoundTransport, GroupState, TensorInfo, Work
from frtop_probe.unprepared.worker import Look
from frtop_tui.job.clock import HostClock
from frtop_tui.job.record import RankRecord


@pytest.fixture
def rank() -> Iterator[UnpreparedRank]:
    made = unprepared_rank()
    yield made
    made.release()


def shown(rank: UnpreparedRank) -> wire.RankUpdate:
    """The full state; also checks that updates bring the same, and that it can be encoded."""
    full = rank.full()
    rank.update(0)
    assert rank.update(0) is None or rank.full().process is not None
    update = wire.Update("h", "i", 1, 1, 1, (full,))
    assert wire.decode_update(wire.encode(update)) == update
    return full


def pending(rank: UnpreparedRank) -> list[tuple[str, int, bool]]:
    return [(op.signature.kind, op.number, op.dated) for op in rank.full().pending or ()
            if op.signature is not None]  # fmt: skip


def test_an_op_of_the_first_look_is_undated_and_a_later_one_dated(rank: UnpreparedRank) -> None:
    assert rank.update(0) is None
    rank.take(look(backend(number=4, pending=[work("allreduce", 4)])), SECOND)
    assert pending(rank) == [("all_reduce", 4, False)]
    rank.take(look(backend(number=4, pending=[work("allreduce", 4)])), 2 * SECOND)
    (op,) = shown(rank).pending or ()
    assert (op.issued_ns, op.dated, op.timeout_ms) == (SECOND, False, 1_800_000)
    assert (op.usual_ns, op.usual_count) == (0, 0)
    rank.take(look(backend(number=5, pending=[work("barrier", 5)])), 3 * SECOND)
    assert pending(rank) == [("barrier", 5, True)]
    (op,) = shown(rank).pending or ()
    assert op.issued_ns == 3 * SECOND
    rank.take(look(backend(number=5)), 4 * SECOND)
    assert shown(rank).pending == ()


def test_progress_has_the_time_of_the_look_that_showed_it(rank: UnpreparedRank) -> None:
    rank.take(look(backend(number=4)), SECOND)
    rank.take(look(backend(number=4)), 2 * SECOND)
    (front,) = shown(rank).group_progress
    assert (front.number, front.issued_ns) == (4, SECOND)
    assert front.last is not None
    assert (front.last.dated, front.last.pending) == (False, False)
    rank.take(look(backend(number=9, pending=[work("allreduce", 9)])), 3 * SECOND)
    (front,) = shown(rank).group_progress
    assert (front.number, front.issued_ns) == (9, 3 * SECOND)
    assert front.last is not None
    assert (front.last.dated, front.last.pending) == (True, True)


def test_the_pace_is_the_longest_pause_seen_from_its_begin(rank: UnpreparedRank) -> None:
    for second, number in ((1, 4), (2, 5), (9, 6), (12, 7)):
        rank.take(look(backend(number=number)), second * SECOND)
    rank.take(look(backend(number=8, pending=[work("allreduce", 8)])), 13 * SECOND)
    (op,) = rank.full().pending or ()
    assert op.usual_ns == 7 * SECOND  # from 2 to 9; nobody knows how long the first one stood
    assert op.usual_count == 3


@pytest.mark.parametrize(("kind", "name"), [
    ("allreduce", "all_reduce"), ("_allgather_base", "all_gather_into_tensor"),
    ("alltoall_base", "all_to_all_single"), ("barrier", "barrier"), ("broadcast", "broadcast"),
    ("_reduce_scatter_base", "reduce_scatter_tensor"),
])  # fmt: skip
def test_kinds_are_named_as_users_write_them(rank: UnpreparedRank, kind: str, name: str) -> None:
    rank.take(look(backend(number=1, pending=[work(kind, 1)])), SECOND)
    assert pending(rank) == [(name, 1, False)]


@pytest.mark.parametrize(("number", "collectives", "works", "expected"), [
    (10, 6, [("allreduce", 10)], [6]),
    (10, 10, [("allreduce", 7), ("allreduce", 9)], [7, 9]),
    # Two messages and a collective were issued since, and all are in progress.
    (10, 6, [("allreduce", 7), ("send", 8), ("barrier", 9), ("recv", 10)], [5, 8, 6, 10]),
    (10, 6, [("allreduce", 7), ("recv", 10)], [None, 10]),  # 8 and 9 may have been messages
    (10, None, [("allreduce", 10)], [10]),
    (None, None, [("allreduce", 3)], [3]),
])  # fmt: skip
def test_collectives_are_numbered_apart_from_messages(
    number: int | None,
    collectives: int | None,
    works: list[tuple[str, int]],
    expected: list[int | None],
) -> None:
    made = [work(op, n) for op, n in works]
    one = Backend("gloo", number=number, collectives=collectives, pending=tuple(made[::-1]))
    assert [found for _, found in numbered_ops(one)] == expected


def test_completed_ops_are_left_out_but_counted() -> None:
    done = replace(work("send", 10), completed=True)
    one = Backend("gloo", number=10, collectives=6, pending=(work("allreduce", 9), done))
    assert [(found.op, number) for found, number in numbered_ops(one)] == [("allreduce", 6)]


def test_an_op_keeps_its_number_when_messages_follow(rank: UnpreparedRank) -> None:
    rank.take(look(backend(number=9, collectives=6, pending=[work("allreduce", 9)])), SECOND)
    rank.take(look(backend(number=12, collectives=6, pending=[work("allreduce", 9)])), 2 * SECOND)
    assert pending(rank) == [("all_reduce", 6, False)]
    assert not shown(rank).notes
    (front,) = rank.full().group_progress
    assert (front.number, front.p2p) == (6, 6)


def test_an_op_that_cannot_be_numbered_is_a_note(rank: UnpreparedRank) -> None:
    rank.take(look(backend(number=12, collectives=6, pending=[work("allreduce", 9)])), SECOND)
    assert pending(rank) == []
    assert shown(rank).notes == ("group 0: all_reduce in progress, number unknown",)


def test_of_several_backends_those_count_that_were_used(rank: UnpreparedRank) -> None:
    gloo, nccl = backend(number=3), backend(number=0, kind="nccl")
    rank.take(Look(rank.pid, c10d(group("0", gloo, nccl))), SECOND)
    assert [one.backend for one in shown(rank).groups] == ["gloo"]
    both = replace(nccl, number=7)
    rank.take(Look(rank.pid, c10d(group("0", gloo, both))), 2 * SECOND)
    full = shown(rank)
    assert [(one.backend, one.id) for one in full.groups] == [("gloo", 1), ("nccl", 2)]
    assert [front.number for front in full.group_progress] == [3, 7]
    last = full.group_progress[1].last
    assert last is not None
    assert (last.tracked, last.pending) == (False, True)  # nothing tells whether it is over


def test_an_op_counts_as_over_only_where_all_in_progress_are_listed(rank: UnpreparedRank) -> None:
    rank.take(look(backend(number=4, reason=NO_PENDING)), SECOND)
    full = shown(rank)
    (front,) = full.group_progress
    assert front.last is not None
    assert (front.last.tracked, front.last.pending) == (False, True)
    assert full.notes == (f"group 0: {NO_PENDING}",)


def test_many_pending_ops_are_cut_and_none_of_them_counts_as_over(rank: UnpreparedRank) -> None:
    many = [work("allreduce", n + 1) for n in range(40)]
    groups = [group(str(n), backend(number=40, pending=many)) for n in range(6)]
    rank.take(Look(rank.pid, c10d(*groups)), SECOND)
    full = shown(rank)
    assert full.pending is not None
    assert len(full.pending) == MAX_PENDING_OF_RANK
    assert full.pending_more == 6 * MAX_PENDING - MAX_PENDING_OF_RANK
    assert all(front.last is not None and front.last.pending for front in full.group_progress)


def test_a_look_that_failed_leaves_the_last_one_and_its_reason(rank: UnpreparedRank) -> None:
    rank.take(look(backend(number=4, pending=[work("allreduce", 4)])), SECOND)
    before = rank.full()
    rank.take(Look(rank.pid, reason=NO_RIGHT), 2 * SECOND)
    assert structs.replace(shown(rank), notes=()) == before
    (note,) = rank.full().notes
    assert note.startswith(f"{NO_RIGHT}: ")  # and the setting that is in the way
    rank.take(look(backend(number=4, pending=[work("allreduce", 4)])), 3 * SECOND)
    assert rank.full().notes == ()


def test_a_rank_without_readable_c10d_state_is_shown(rank: UnpreparedRank) -> None:
    rank.take(Look(rank.pid, reason=NO_RIGHT), SECOND)
    update = rank.update(0)
    assert update is not None
    assert update.identity is not None
    assert (update.identity.prepared, update.identity.c10d_readable) == (False, False)
    assert update.notes[0].startswith(NO_RIGHT)


def test_destroyed_groups_are_gone_and_their_last_number_is_known(rank: UnpreparedRank) -> None:
    rank.take(look(backend(number=4, pending=[work("allreduce", 4)])), SECOND)
    rank.update(SECOND)
    rank.take(Look(rank.pid, c10d(reason=NO_GROUPS)), 2 * SECOND)
    update = rank.update(2 * SECOND)
    assert update is not None
    assert [(one.name, one.gone) for one in update.groups] == [("0", True)]
    assert (update.pending, update.notes) == ((), (wire.LEFT_GROUPS,))
    full = shown(rank)
    assert [front.number for front in full.group_progress] == [4]
    assert full.identity is not None
    assert (full.identity.rank, full.identity.job.world_size) == (1, 3)


def test_that_the_others_have_ended_is_told_once_all_were_started(
    rank: UnpreparedRank, monkeypatch: pytest.MonkeyPatch
) -> None:
    rank.take(look(backend(number=4)), SECOND)
    rank.learn(candidate(ended=2), job())
    monkeypatch.setattr(rank, "_started_ns", time.monotonic_ns() - 29 * SECOND)
    assert rank.full().notes == ()
    monkeypatch.setattr(rank, "_started_ns", time.monotonic_ns() - 31 * SECOND)
    assert rank.full().notes == (wire.OTHERS_ENDED,)


def test_a_group_that_is_made_anew_is_not_gone_and_counts_from_its_begin(
    rank: UnpreparedRank,
) -> None:
    rank.take(look(backend(number=4)), SECOND)
    rank.take(Look(rank.pid, c10d(reason=NO_GROUPS)), 2 * SECOND)
    for second, number in ((3, 9), (4, 2)):
        rank.take(look(backend(number=number)), second * SECOND)
        full = shown(rank)
        assert [(one.id, one.gone) for one in full.groups] == [(1, False)]
        (front,) = full.group_progress
        assert (front.number, front.issued_ns) == (number, second * SECOND)


def test_state_is_bounded_while_groups_come_and_go(rank: UnpreparedRank) -> None:
    for n in range(500):
        made = group(str(n), backend(number=1, pending=[work("allreduce", 1)]))
        rank.take(Look(rank.pid, c10d(made)), (n + 1) * SECOND)
    full = shown(rank)
    living = [(one.name, one.id) for one in full.groups if not one.gone]
    assert living == [("499", 500)]  # ids are not reused
    assert len(full.groups) == len(full.group_progress) == len(rank._groups._ids) == MAX_GONE + 1
    assert len(full.pending or ()) == 1


def test_progress_that_could_not_be_read_again_says_of_when_it_is(rank: UnpreparedRank) -> None:
    rank.take(look(backend(number=4)), 3 * SECOND, begun_ns=2 * SECOND)
    (front,) = progress_at(rank, 4)
    assert front.as_of_ns == 0
    (front,) = progress_at(rank, 5)
    assert (front.number, front.as_of_ns) == (4, 2 * SECOND)
    rank.take(Look(rank.pid, reason=NO_RIGHT), 6 * SECOND)
    (front,) = shown(rank).group_progress
    assert front.as_of_ns == 2 * SECOND
    rank.take(look(backend(number=4)), 7 * SECOND)
    (front,) = progress_at(rank, 8)
    assert (front.number, front.as_of_ns) == (4, 0)


def progress_at(rank: UnpreparedRank, second: int) -> tuple[wire.GroupProgress, ...]:
    rank.update(second * SECOND)
    return rank.full().group_progress


def test_books_that_are_not_readable_for_long_tell_nothing_any_more(rank: UnpreparedRank) -> None:
    rank.take(look(backend(number=4, pending=[work("allreduce", 4)])), SECOND)
    for second in range(2, 40):
        rank.take(Look(rank.pid, reason=NO_RIGHT), second * SECOND)
        rank.update(second * SECOND)
        full = rank.full()
        assert full.identity is not None
        readable = second * SECOND - SECOND <= STALE_NS
        assert (full.identity.c10d_readable, len(full.pending or ())) == (
            readable,
            int(readable),
        ), second
    rank.take(look(backend(number=4, pending=[work("allreduce", 4)])), 40 * SECOND)
    rank.update(40 * SECOND)
    full = shown(rank)
    assert full.identity is not None
    # It is the op of the first look: its age is as little known as then, and no less.
    assert (full.identity.c10d_readable, pending(rank)) == (True, [("all_reduce", 4, False)])
    assert [op.issued_ns for op in full.pending or ()] == [SECOND]


def test_an_op_that_began_while_nobody_could_look_is_undated(rank: UnpreparedRank) -> None:
    rank.take(look(backend(number=3)), SECOND)
    rank.take(look(backend(number=4, pending=[work("allreduce", 4)])), 2 * SECOND + STALE_NS)
    assert pending(rank) == [("all_reduce", 4, False)]


def test_ops_of_one_group_stay_until_it_is_not_readable_for_long(rank: UnpreparedRank) -> None:
    rank.take(look(backend(number=4, pending=[work("allreduce", 4)])), SECOND)
    before = rank.full()
    torn = GroupState(1, "0", reason="members not readable: the group is being created")
    for second in (2, 5):
        rank.take(Look(rank.pid, c10d(torn)), second * SECOND)
        assert structs.replace(rank.full(), notes=()) == structs.replace(before, notes=())
    rank.take(Look(rank.pid, c10d(torn)), 2 * SECOND + STALE_NS)
    assert rank.full().pending == ()


def test_a_count_that_is_not_readable_this_time_changes_nothing(rank: UnpreparedRank) -> None:
    rank.take(look(backend(number=9, collectives=6)), SECOND)
    rank.take(look(backend(number=9, collectives=None)), 2 * SECOND)
    full = shown(rank)
    assert [front.number for front in full.group_progress] == [6]
    assert [one.exact for one in full.groups] == [True]


def test_torchruns_words_tell_who_it_is(rank: UnpreparedRank) -> None:
    rank.take(look(backend(number=1)), SECOND)
    identity = shown(rank).identity
    assert identity is not None
    assert (identity.rank, identity.local_rank, identity.prepared, identity.c10d_readable) == (
        1, 1, False, True,
    )  # fmt: skip
    made = identity.job
    assert (made.master_addr, made.master_port, made.run_id) == ("10.0.0.1", 29500, "abc")
    assert (made.world_size, made.name, bool(made.nonce)) == (3, "train.py", True)


def test_the_c10d_state_tell_who_it_is_where_the_launcher_does_not() -> None:
    """As under `mp.spawn`: neither environment nor title has a rank."""
    rank = unprepared_rank(rank=None, world_size=None, local_rank=None, job="started by 7")
    rank.take(Look(rank.pid, c10d(reason=NO_GROUPS)), SECOND)
    assert (identity := rank.full().identity) is not None
    assert (identity.rank, identity.job.world_size) == (-1, 0)
    world = group("0", backend(number=1), ranks=(0, 1, 2), rank=2)
    pair = group("1", backend(number=1), ranks=(1, 2), rank=1)
    rank.take(Look(rank.pid, c10d(pair, world)), 2 * SECOND)
    assert (identity := shown(rank).identity) is not None
    assert (identity.rank, identity.job.world_size) == (2, 3)
    rank.release()


def test_a_rank_that_only_its_groups_name_keeps_its_number_without_them() -> None:
    rank = unprepared_rank(rank=None, world_size=None, local_rank=None, job="started by 7")
    world = group("0", backend(number=1), ranks=(0, 1, 2), rank=2)
    rank.take(Look(rank.pid, c10d(world)), SECOND)
    before = rank.full().identity
    rank.take(Look(rank.pid, c10d(reason=NO_GROUPS)), 2 * SECOND)
    rank.learn(candidate(rank=None, world_size=None), job(identity="started by 7"))
    full = shown(rank)
    assert full.identity == before
    assert all(one.gone for one in full.groups)
    assert full.notes == (wire.LEFT_GROUPS,)  # and not that there are none yet
    rank.release()


def test_the_start_is_told_by_the_clock_of_all_other_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel counts it from the boot, with the time for which the host was suspended."""
    hours = 8 * 3600 * SECOND
    monkeypatch.setattr(time, "clock_gettime_ns", lambda _: time.monotonic_ns() + hours)
    rank = unprepared_rank()
    rank.take(look(backend(number=1)), SECOND)
    assert (identity := rank.full().identity) is not None
    ticks_ns = rank.start_ticks * SECOND // os.sysconf("SC_CLK_TCK")
    assert abs(ticks_ns - hours - identity.started_ns) < SECOND
    rank.release()


@pytest.mark.parametrize(
    ("identity", "place"),
    [
        ("run exp:42 10.0.0.1:29500", ("10.0.0.1", 29500, "exp:42")),
        ("10.0.0.1:29500 run abc", ("10.0.0.1", 29500, "abc")),
        ("127.0.0.1:29500 net 7", ("127.0.0.1", 29500, "")),
        ("started by 7 train.py", ("", 0, "")),
        ("run", ("", 0, "")),
    ],
)
def test_the_words_of_a_world(identity: str, place: tuple[str, int, str]) -> None:
    assert place_of(identity) == place


def test_a_later_search_may_know_more(rank: UnpreparedRank) -> None:
    nameless = unprepared_rank(rank=None, world_size=None, local_rank=None, job="session 5")
    nameless.take(Look(nameless.pid, c10d(reason=NO_GROUPS)), SECOND)
    nameless.learn(candidate(), job())
    assert (identity := nameless.full().identity) is not None
    assert (identity.rank, identity.job.run_id) == (1, "abc")
    nameless.release()
    rank.take(look(backend(number=1)), SECOND)
    rank.learn(candidate(), replace(job(), identity="session 5"))  # its launcher has ended
    assert (identity := rank.full().identity) is not None
    assert identity.job.run_id == "abc"


def test_a_look_at_another_process_of_that_number_is_ignored(rank: UnpreparedRank) -> None:
    rank.take(look(backend(number=4)), SECOND)
    before = rank.full()
    other = c10d(group("0", backend(number=1)), start_ticks=rank.start_ticks + 5)
    rank.take(Look(rank.pid, other), 2 * SECOND)
    rank.take(Look(rank.pid, reason=REPLACED), 3 * SECOND)
    assert rank.full() == before


@pytest.mark.parametrize("seen", [False, True])
def test_the_end_tells_the_exit_status(rank: UnpreparedRank, seen: bool) -> None:
    if seen:
        rank.take(look(backend(number=4)), SECOND)
    rank.exit = ExitStatus(code=1)
    update = rank.end(5 * SECOND, oom_kills=0)
    assert update.identity is not None
    assert update.identity.rank == 1
    assert update.exit_info is not None
    assert (update.exit_info.exit_code, update.exit_info.at_ns) == (1, 5 * SECOND)
    rank.take(look(backend(number=9)), 6 * SECOND)  # a look that was under way
    assert [front.number for front in rank.full().group_progress] == ([4] if seen else [])


def test_only_what_changed_is_sent(rank: UnpreparedRank) -> None:
    groups = [group(str(n), backend(number=4)) for n in range(3)]
    rank.take(Look(rank.pid, c10d(*groups)), SECOND)
    first = rank.update(0)
    assert first is not None
    assert (len(first.groups), len(first.group_progress)) == (3, 3)
    groups[1] = group("1", backend(number=5))
    rank.take(Look(rank.pid, c10d(*groups)), 2 * SECOND)
    second = rank.update(0)
    assert second is not None
    assert (second.identity, second.groups, second.pending) == (None, (), None)
    assert [front.number for front in second.group_progress] == [5]


def test_names_of_groups_by_address_are_for_stacks(rank: UnpreparedRank) -> None:
    named = replace(group("0", backend(number=1)), description="default_pg", address=0xABC)
    rank.take(Look(rank.pid, c10d(named)), SECOND)
    assert rank.group_names == {0xABC: "default_pg"}


def test_a_reason_that_has_gone_is_cleared(rank: UnpreparedRank) -> None:
    rank.take(Look(rank.pid, c10d(reason=NO_GROUPS)), SECOND)
    update = rank.update(0)
    assert update is not None
    assert update.identity is not None
    record = RankRecord("node0", HostClock(), 1, update.identity)
    record.apply(update, 1)
    assert record.latest.notes == (NO_GROUPS,)
    rank.take(look(backend(number=4)), 2 * SECOND)
    update = rank.update(0)
    assert update is not None
    record.apply(update, 2)
    assert not record.latest.notes


def test_transports_are_sent_once_and_again_when_they_change(rank: UnpreparedRank) -> None:
    seen = look(backend(7))
    rank.take(seen, SECOND)
    assert shown(rank).transports is None  # nobody could tell
    rank.take(replace(seen, transports=(FoundTransport("DeepEP", "a sign"),)), 2 * SECOND)
    update = rank.update(2 * SECOND)
    assert update is not None
    assert update.transports == (wire.Transport("DeepEP", "a sign"),)
    rank.take(replace(seen, transports=None), 3 * SECOND)
    assert shown(rank).transports == (wire.Transport("DeepEP", "a sign"),)
    rank.take(replace(seen, transports=()), 4 * SECOND)
    update = rank.update(4 * SECOND)
    assert update is not None
    assert update.transports == ()


def sized(op: str, number: int, *tensors: TensorInfo) -> Work:
    return replace(work(op, number), outputs=tensors)


def outputs(rank: UnpreparedRank) -> tuple[wire.TensorSpec, ...] | None:
    (op,) = rank.full().pending or ()
    assert op.signature is not None
    return op.signature.outputs


FLOATS = TensorInfo((1024,), "float32", "cpu")


def test_shapes_are_told_when_two_looks_have_shown_the_same(rank: UnpreparedRank) -> None:
    torn = TensorInfo((7,), "int8", "cpu")
    for second, (tensor, told) in enumerate([(torn, False), (FLOATS, False), (FLOATS, True)]):
        rank.take(look(backend(4, [sized("allreduce", 4, tensor)])), (second + 1) * SECOND)
        expected = (wire.TensorSpec("float32", (1024,)),) if told else None
        assert outputs(rank) == expected
    rank.take(look(backend(4, [work("allreduce", 4)])), 5 * SECOND)
    assert outputs(rank)  # what was seen twice stays


@pytest.mark.parametrize(("kind", "count", "told"), [
    ("broadcast", 2, True), ("reduce", 2, True), ("scatter", 2, True), ("allgather", 2, True),
    ("allgather", 16, False),  # a list that was cut
    ("gather", 2, False), ("alltoall", 2, False), ("allreduce_coalesced", 2, False),
    ("recv", 2, False),
])  # fmt: skip
def test_shapes_are_told_where_all_members_must_have_the_same(
    rank: UnpreparedRank, kind: str, count: int, told: bool
) -> None:
    for second in (1, 2):
        rank.take(look(backend(4, [sized(kind, 4, *[FLOATS] * count)])), second * SECOND)
    assert outputs(rank) == ((wire.TensorSpec("float32", (1024,), 2),) if told else None)

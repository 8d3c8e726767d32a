"""Ranks without a recorder: what their stacks add to what c10d's state lists."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from diagnosis.scenes import SECOND, frame, only, told
from diagnosis.unprepared import Unprepared
from frtop_probe import wire
from frtop_tui.diagnosis.blocked.ops_by_stack import OpsByStack, with_op
from frtop_tui.diagnosis.engine import Engine
from frtop_tui.job.unprepared import is_least_since
from frtop_tui.text.exit_status import exit_status


def receives(scene: Unprepared, rank: int, source: int) -> None:
    scene.in_call(rank, "recv", (("src", f"{source}"), ("group", '"default_pg"')))


@pytest.mark.parametrize("recorded", [set(), {0, 2, 3}], ids=str)
def test_a_receive_that_only_a_stack_shows_blocks_its_rank(recorded: set[int]) -> None:
    scene = Unprepared(4)
    scene.prepared = recorded
    receives(scene, 1, 0)
    scene.sleeps(0)
    for rank in (2, 3):
        scene.computes(rank)
    verdict = only(scene.settle(40))
    assert (verdict.kind, verdict.culprits, verdict.why.cause) == ("not_entered", (0,), "sleeping")
    assert "rank 1 waits in recv from rank 0" in verdict.headline


def test_a_rank_that_goes_on_to_the_next_source_waits_for_that_one() -> None:
    """`for source in sources: recv(source)` is one line: its stacks differ by the peer only."""
    scene = Unprepared(4)
    receives(scene, 1, 0)
    for rank in (0, 2, 3):
        scene.sleeps(rank)
    scene.settle(40)
    before, engine = scene.frame(), Engine()
    assert only(engine.judge(before).frame).culprits == (0,)
    receives(scene, 1, 2)
    scene.settle(40)
    after = scene.frame()
    # The others report nothing new: they are the same objects.
    after = replace(after, ranks={**before.ranks, 1: after.ranks[1]})
    assert only(engine.judge(after).frame).culprits == (2,)


@pytest.mark.parametrize("kind", ["all_reduce", "monitored_barrier"])
def test_a_collective_that_gloo_does_not_list_blocks_its_rank(kind: str) -> None:
    """One that DETAIL still checks with all members, and a barrier that the caller waits in."""
    scene = Unprepared(4)
    for rank in (0, 1, 3):
        scene.in_call(rank, kind, (("group", '"default_pg"'),))
    if kind == "monitored_barrier":  # which counts at once
        scene.does([0, 1, 3], "barrier")
    scene.sleeps(2)
    verdict = only(scene.settle(40))
    assert (verdict.kind, verdict.culprits, verdict.why.cause) == ("not_entered", (2,), "sleeping")
    assert verdict.op is not None
    assert (verdict.op.kind, verdict.op.number) == (kind, 8)
    assert f"{kind} #8 of default_pg; ranks 0-1,3 wait" in verdict.headline


def test_a_call_that_is_newer_than_the_last_number_read_is_no_mismatch() -> None:
    """On a full host the stack may be of now, and the number of many ops ago."""
    scene = Unprepared(4)
    scene.waits([3], "all_reduce", for_s=40)
    for rank in (1, 2):
        scene.in_call(rank, "barrier", (("group", '"default_pg"'),))
    scene.sleeps(0)
    scene.read_at = dict.fromkeys(range(4), -25.0)
    found = scene.settle(40)
    assert not [one for one in found.verdicts if one.kind == "mismatch"]
    assert {rank for one in found.verdicts for rank in one.culprits} <= {0}


def test_a_call_that_is_made_of_several_ops_is_no_mismatch_with_them() -> None:
    scene = Unprepared(4)
    scene.waits([0], "all_gather", for_s=40)
    for rank in (0, 1, 3):
        scene.in_call(rank, "all_gather_object", (("group", '"default_pg"'),))
    scene.sleeps(2)
    found = scene.settle(40)
    assert not [one for one in found.verdicts if one.kind == "mismatch"]
    assert {rank for one in found.verdicts for rank in one.culprits} <= {2}


@pytest.mark.parametrize("in_it", [(0, 1, 3), (0,)])
def test_an_all_to_all_single_is_no_mismatch_with_the_all_to_all_that_gloo_lists(
    in_it: tuple[int, ...],
) -> None:
    """Both are `ALLTOALL` there. On a full host a rank may be in the call and not list it yet."""
    scene = Unprepared(4)
    scene.waits(list(in_it), "all_to_all", for_s=40)
    for rank in (0, 1, 3):
        scene.in_call(rank, "all_to_all_single", (("group", '"default_pg"'),))
    scene.sleeps(2)
    found = scene.settle(40)
    assert not [one for one in found.verdicts if one.kind == "mismatch"]
    assert {rank for one in found.verdicts for rank in one.culprits} == {2}
    assert [op.sync for op in with_op(scene.rank(0)).pending] == [True]


def _as_c10d(scene: Unprepared) -> None:
    """Ops as c10d's state has them: without lines and threads."""
    for actor in scene.actors.values():
        actor.pending = [replace(op, site=None, thread=0, sync=False) for op in actor.pending]
        actor.group_progress = {
            group: replace(front, last=replace(front.last, site=None, thread=0))
            for group, front in actor.group_progress.items()
            if front.last is not None
        }


@pytest.mark.parametrize(("function", "shown"), [
    ("reduce_scatter_tensor", "reduce_scatter_tensor #8"),
    ("all_reduce", "all_reduce #8"),
    ("", "all_reduce or reduce_scatter_tensor #8"),
])  # fmt: skip
def test_what_gloo_calls_all_reduce_is_named_by_the_stack_of_a_rank_in_it(
    function: str, shown: str
) -> None:
    scene = Unprepared(4)
    scene.waits([0, 1, 3], "all_reduce", for_s=40)
    _as_c10d(scene)
    for rank in (0, 1, 3):
        if function:
            scene.in_call(rank, function)
        else:
            scene.at(rank, frame("train.py:20", source="work.wait()"))
    scene.sleeps(2)
    verdict = only(scene.settle(40))
    assert (verdict.kind, verdict.culprits) == ("not_entered", (2,))
    assert f"has not entered {shown} of default_pg" in verdict.headline


@pytest.mark.parametrize("recorded", [set(), {3}], ids=str)
def test_an_all_reduce_by_gloos_name_is_no_mismatch_with_the_call_that_a_stack_shows(
    recorded: set[int],
) -> None:
    scene = Unprepared(4)
    scene.waits([0, 1], "all_reduce", for_s=40)
    if not recorded:
        scene.waits([3], "all_reduce", for_s=40)
    _as_c10d(scene)
    if recorded:
        scene.prepared = recorded
        scene.waits([3], "reduce_scatter_tensor", for_s=40)
    scene.in_call(0, "reduce_scatter_tensor")
    scene.sleeps(2)
    assert told(scene.settle(40), "kind", "culprits") == ("not_entered", (2,))


def test_a_collective_is_not_in_progress_by_one_stack() -> None:
    scene = Unprepared(4)
    scene.in_call(0, "all_reduce", (("group", '"default_pg"'),))
    scene.settle(0)
    assert with_op(scene.rank(0)).pending == ()


def test_a_rank_that_moves_between_two_looks_is_inside_of_nothing() -> None:
    scene = Unprepared(2)
    receives(scene, 1, 0)
    scene.settle(3)
    scene.in_call(1, "recv", (("src", "0"), ("group", '"default_pg"')), line=21)
    assert scene.settle(6).verdicts == ()  # culprits known are looked at every 5 s
    assert not scene.rank(1).pending
    assert with_op(scene.rank(1)).pending == ()


@pytest.mark.parametrize("seen_to_begin", [True, False])
def test_a_message_is_as_old_as_the_newest_op_of_any_group(*, seen_to_begin: bool) -> None:
    scene = Unprepared(2, ago=60)
    scene.group("tp", [0, 1], "tp")
    scene.does([1], "all_reduce", group="tp", ago=20)
    for number, front in scene.actors[1].group_progress.items():
        assert front.last is not None
        dated = seen_to_begin == (front.group == 2)  # and the other way round, 40 s before that
        last = replace(front.last, dated=dated)
        scene.actors[1].group_progress[number] = replace(front, last=last)
    receives(scene, 1, 0)
    scene.settle(4)
    (op,) = with_op(scene.rank(1)).pending
    assert op.dated == seen_to_begin


def test_a_message_of_an_unknown_group_or_peer_is_an_unknown_wait() -> None:
    scene = Unprepared(4)
    scene.group("tp", [0, 1], "tp")
    for rank, variables in enumerate(((("src", "0"),), (("group", '"tp"'),))):
        scene.in_call(rank, "recv", variables)
    scene.settle(4)
    for rank in (0, 1):
        (op,) = with_op(scene.rank(rank)).pending
        assert (op.signature, op.p2p) == (None, True)


@pytest.mark.parametrize("function", ["recv", "new_group", "wait", "all_reduce"])
def test_an_op_that_was_added_is_not_added_again(function: str) -> None:
    """Captures keep it, and are judged again when they are opened."""
    scene = Unprepared(2)
    scene.waits([0], "all_reduce", for_s=5, sync=False)
    scene.in_call(0, function, (("src", "1"), ("group", '"default_pg"')))
    scene.settle(4)
    once = with_op(scene.rank(0))
    assert with_op(once) is once
    assert len({op.sequence for op in once.pending}) == len(once.pending)


def test_the_collective_whose_call_the_stack_shows_is_the_one_it_waits_in() -> None:
    scene = Unprepared(4)
    for kind in ("all_gather", "broadcast", "all_reduce"):
        scene.waits([0], kind, for_s=5, sync=False)
    scene.in_call(0, "broadcast")
    scene.settle(4)
    *others, entered = with_op(scene.rank(0)).pending
    assert entered.signature is not None
    assert (entered.signature.kind, entered.sync) == ("broadcast", True)
    assert not any(op.sync for op in others)


@pytest.mark.parametrize(("local", "confidence"), [
    ("False", "confirmed"),
    ("True", "suspect"),  # only the members make the call, and the stack does not name them
])  # fmt: skip
def test_who_has_to_make_a_group_is_read_from_its_call(local: str, confidence: str) -> None:
    scene = Unprepared(3)
    for rank in (0, 2):
        scene.in_call(rank, "new_group", (("use_local_synchronization", local),))
    scene.sleeps(1)
    verdict = only(scene.settle(50))
    assert (verdict.kind, verdict.culprits) == ("not_entered", (1,))
    assert verdict.confidence == confidence


def test_numbers_that_nobody_saw_move_prove_nothing() -> None:
    scene = Unprepared(2)
    for actor in scene.actors.values():
        for number, front in actor.group_progress.items():
            assert front.last is not None
            first_look = replace(front, last=replace(front.last, dated=False))
            actor.group_progress[number] = first_look
    for rank in (0, 1):
        scene.computes(rank)
    assert scene.settle(1).health == "undecided"
    scene.does([0, 1], "all_reduce", ago=0.1)
    assert scene.settle(1).health == "healthy"


@pytest.mark.parametrize("readable", [True, False])
def test_a_job_that_ended_well_after_the_first_look_has_ended(*, readable: bool) -> None:
    """It is no open question that keeps a command waiting."""
    scene = Unprepared(2, begun=0)
    scene.readable = readable
    scene.settle(1)
    for rank in (0, 1):
        scene.ends(rank, exit_code=0)
    found = scene.settle(1)
    assert (found.health, exit_status(found)) == ("ended", 0)


def test_where_c10d_state_cannot_be_read_nobody_knows_that_a_job_only_starts() -> None:
    scene = Unprepared(2, begun=0)
    scene.readable = False
    for actor in scene.actors.values():
        actor.groups.clear()
    assert scene.settle(1).health == "undecided"


@pytest.mark.parametrize(("dated", "since"), [(False, "at least 1m"), (True, "1m")])
def test_a_job_that_was_at_rest_at_the_first_look_has_rested_at_least_so_long(
    *, dated: bool, since: str
) -> None:
    """Its last op was over by then, nobody knows for how long."""
    scene = Unprepared(2, ago=60)
    for rank, actor in scene.actors.items():
        front = actor.group_progress[1]
        assert front.last is not None
        actor.group_progress[1] = replace(front, last=replace(front.last, dated=dated))
        scene.at(rank, frame("train.py:44", source="state = handle.read()"))
        scene.kernel(rank, "D", "read", "nfs_wait_bit", "/nfs/vocabulary")
    found = scene.settle(30)
    verdict = only(found)
    assert f"none has been issued for {since}" in verdict.headline
    assert is_least_since(found, verdict.since_ns) is not dated


def test_an_op_of_the_first_look_needs_no_half_minute() -> None:
    scene = Unprepared(3)
    scene.waits([0, 2], "all_reduce", for_s=0.1, sync=False, usual_count=0)
    scene.sleeps(1)
    for rank in (0, 2):
        scene.in_call(rank, "all_reduce")
        actor = scene.actors[rank]
        actor.pending = [replace(op, dated=False) for op in actor.pending]
    assert only(scene.settle(6)).confidence == "confirmed"


def test_a_rank_that_is_the_same_object_stays_the_same_object() -> None:
    scene, ops = Unprepared(2), OpsByStack()
    receives(scene, 1, 0)
    scene.settle(4)
    first = ops.added_to(scene.frame())
    again = ops.added_to(scene.frame())
    assert first.ranks[1].pending
    assert all(first.ranks[rank] is again.ranks[rank] for rank in (0, 1))
    assert first.ranks[1].pending[0].issued_ns <= scene.now_ns + 100_000 * SECOND


def test_who_waits_for_something_unknown_is_no_root() -> None:
    scene = Unprepared(3)
    scene.waits([0, 2], "all_reduce", for_s=40, sync=False)
    scene.at(1, frame("train.py:50", source="work.wait()"))
    found = scene.settle(8)
    assert all(1 not in verdict.culprits for verdict in found.verdicts)
    assert found.health not in ("healthy", "hung")


def test_nobody_is_named_before_its_stack_was_taken() -> None:
    scene = Unprepared(3)
    scene.waits([0, 2], "all_reduce", for_s=40, sync=False)
    scene.actors[1].dump_error = "deadline"
    assert all(1 not in verdict.culprits for verdict in scene.settle(8).verdicts)
    scene.actors[1].dump_error = "refused"  # there will be none
    assert only(scene.settle(4)).culprits == (1,)


def test_roots_are_read_from_the_calls() -> None:
    scene = Unprepared(3)
    scene.waits(range(3), "broadcast", for_s=40, sync=False, reduce=None)
    for rank in range(3):
        scene.in_call(rank, "broadcast", (("src", "2" if rank == 1 else "0"),))
    assert told(scene.settle(6), "kind", "culprits") == ("mismatch", (1,))


def recorded(scene: Unprepared, rank: int, kind: str, number: int, size: int = 4) -> None:
    """An op that torch's own recorder has of a rank."""
    specs = (wire.TensorSpec("float32", (size,)),)
    group = next(iter(scene.actors[rank].groups))
    op = wire.Op(number - 1000, group, number, wire.Signature(kind, inputs=specs), None, SECOND)
    scene.recorded.setdefault(rank, []).append(op)


def test_ops_that_torch_has_recorded_must_agree() -> None:
    scene = Unprepared(4)
    for rank in range(4):
        for number in range(1, 8):
            recorded(scene, rank, "all_reduce", number, 5 if (rank, number) == (2, 3) else 4)
    verdict = only(scene.settle(4))
    assert (verdict.kind, verdict.confidence, verdict.culprits) == ("mismatch", "confirmed", (2,))
    assert verdict.op is not None
    assert verdict.op.number == 3


def test_past_ops_are_not_compared_with_pending_ones_which_have_other_names() -> None:
    """c10d's state calls an op `all_gather_into_tensor` that its recorder calls `all_gather`."""
    scene = Unprepared(4)
    scene.waits([0, 1, 3], "all_gather_into_tensor", for_s=40, sync=False, inputs=None)
    number = scene.actors[0].pending[-1].number
    for rank in (0, 1, 3):
        scene.in_call(rank, "all_gather_into_tensor")
        recorded(scene, rank, "all_gather", number)
    scene.sleeps(2)
    recorded(scene, 2, "all_gather", number)
    assert all(verdict.kind != "mismatch" for verdict in scene.settle(6).verdicts)


def test_sizes_of_ops_in_progress_must_agree() -> None:
    scene = Unprepared(4)
    for ranks, size in (((0, 2, 3), 1024), ((1,), 1025)):
        specs = (wire.TensorSpec("float32", (size,)),)
        scene.waits(
            ranks, "all_reduce", for_s=40, sync=False, reduce=None, inputs=None, outputs=specs
        )
    verdict = only(scene.settle(6))
    assert (verdict.kind, verdict.confidence, verdict.culprits) == ("mismatch", "confirmed", (1,))
    assert "1025" in verdict.headline + verdict.why.text


def test_what_all_have_entered_is_undecided_as_sizes_are_not_seen() -> None:
    scene = Unprepared(3)
    scene.waits(range(3), "all_reduce", for_s=40, sync=False)
    for rank in range(3):
        scene.in_call(rank, "all_reduce")
    assert only(scene.settle(6)).kind == "undecided"


def test_a_rank_whose_groups_are_gone_has_left() -> None:
    scene = Unprepared(3)
    scene.waits([0, 2], "all_reduce", for_s=40, sync=False)
    scene.sleeps(1)
    scene.notes[1] = (wire.LEFT_GROUPS,)
    assert only(scene.settle(6)).why.cause == "out_of_loop"


def test_a_rank_whose_c10d_state_are_not_readable_is_no_culprit() -> None:
    """It may have entered: nobody knows its number."""
    scene = Unprepared(3)
    scene.waits([0, 2], "all_reduce", for_s=40, sync=False)
    scene.computes(1)
    scene.unreadable.add(1)
    for rank in (0, 2):
        scene.in_call(rank, "all_reduce")
    assert told(scene.settle(8), "kind", "culprits") == ("undecided", ())


@pytest.mark.parametrize(("started_s", "named"), [(20, False), (600, True)])
def test_start_up_is_given_half_a_minute(started_s: int, named: bool) -> None:
    scene = Unprepared(3, begun=0)
    scene.started_s = started_s
    for rank in (0, 2):
        scene.in_call(rank, "init_process_group")
    scene.sleeps(1)
    for actor in scene.actors.values():
        actor.groups.clear()
    verdicts = scene.settle(7).verdicts
    assert [verdict.culprits for verdict in verdicts] == ([(1,)] if named else [])


@pytest.mark.parametrize(("rests", "named"), [(False, []), (True, [3])])
def test_a_wait_that_only_a_stack_shows_lasts_if_the_counted_ranks_rest(
    *, rests: bool, named: list[int]
) -> None:
    """In a job that moves, every look finds a rank without readable c10d state in a call."""
    scene = Unprepared(4, ago=8)
    scene.unreadable.add(2)
    scene.in_call(2, "all_reduce", (("group", '"default_pg"'),))
    for rank in (0, 1):
        scene.computes(rank)
        scene.kernel(rank, "R")
    scene.sleeps(3)
    found: list[int] = []
    for tick in range(80):
        if not rests and tick % 8 == 0:
            scene.does([0, 1, 3], "all_reduce", ago=0.1)
        found = [rank for one in scene.judge().frame.verdicts for rank in one.culprits]
        assert not found or rests
        scene.pass_time(0.5)
    assert found == named

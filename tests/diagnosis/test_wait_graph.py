"""Where waits lead: to absent ranks, to a deadlock, or to an op that all have entered."""

from __future__ import annotations

import pytest

from diagnosis.scenes import SECOND, Scene, frame, one_sleeps, only, told
from frtop_probe import wire
from frtop_probe.ring.rank_ranges import fold
from frtop_tui.text.exit_status import exit_status


def test_nested_groups_name_only_the_root() -> None:
    scene = Scene(8)
    for first in (0, 2, 4, 6):
        scene.group(f"tp{first}", [first, first + 1], "tp")
    scene.group("dp", [1, 3, 5, 7], "dp")
    scene.fetches(7, worker=0, pid=77)
    scene.waits([1, 3, 5], "all_reduce", for_s=20, group="dp")
    for first in (0, 2, 4, 6):
        scene.waits([first], "all_gather", for_s=19, group=f"tp{first}")
    verdict = only(scene.settle())
    assert verdict.culprits == (7,)
    assert fold(verdict.victims) == "0-6"


def test_two_roots_in_two_groups_are_two_verdicts() -> None:
    scene = Scene(8)
    scene.group("a", [0, 1, 2, 3], "a")
    scene.group("b", [4, 5, 6, 7], "b")
    scene.waits([0, 1, 2], "all_reduce", for_s=12, group="a")
    scene.waits([4, 5, 6], "all_reduce", for_s=10, group="b")
    scene.sleeps(3)
    scene.fetches(7)
    found = scene.settle()
    assert [verdict.culprits for verdict in found.verdicts] == [(3,), (7,)]


def test_a_rank_that_just_entered_another_op_makes_progress() -> None:
    scene = Scene(4)
    scene.group("1", [2, 3], "tp")
    scene.waits([0, 1], "all_reduce", for_s=5)
    scene.waits([3], "all_reduce", for_s=5)
    scene.waits([2], "all_gather", for_s=0.3, group="1")
    assert told(scene.settle(0), "culprits", "progress") == ((2,), "active")
    assert exit_status(scene.settle(0)) == 5


@pytest.mark.parametrize("counts", [False, True])
def test_who_came_out_of_a_long_wait_a_moment_ago_has_time(*, counts: bool) -> None:
    """A jam dissolves: rank 2 goes on, so rank 1 does, and rank 0 still waits for rank 1."""
    scene = Scene(3, counts=counts)
    scene.waits([0], "recv", for_s=8, p2p=True, peer=1, tag=0)
    scene.waits([1], "recv", for_s=8, p2p=True, peer=2, tag=0)
    scene.sleeps(2)
    assert only(scene.settle(4)).culprits == (2,)
    scene.does([2], "send", p2p=True, peer=1, tag=0, ago=0.1)
    scene.waits([2], "recv", for_s=0.1, p2p=True, peer=1, tag=1)
    scene.actors[1].pending.clear()
    scene.sleeps(1)
    for _ in range(5):
        assert scene.judge().frame.verdicts == ()
        scene.pass_time(0.5)
    assert only(scene.settle(4)).culprits == (1,)


@pytest.mark.parametrize(("for_s", "usual_count"), [(10, 100), (4, 0)])  # it needs no history
def test_groups_used_in_opposite_order_are_a_deadlock(for_s: float, usual_count: int) -> None:
    scene = Scene(2)
    for rank, name in enumerate("ab"):
        scene.group(name, [0, 1], name)
        scene.waits([rank], "all_reduce", for_s=for_s, group=name, usual_count=usual_count)
    found = scene.settle()
    verdict = only(found)
    assert (verdict.kind, verdict.culprits, verdict.parties) == ("deadlock", (), ((0,), (1,)))
    assert (verdict.confidence, found.health, exit_status(found)) == ("confirmed", "hung", 3)


@pytest.mark.parametrize("world", [2, 3])
def test_receives_that_wait_for_each_other_are_a_deadlock(world: int) -> None:
    scene = Scene(world)
    for rank in range(world):
        scene.waits([rank], "recv", for_s=10, p2p=True, peer=(rank + 1) % world)
    verdict = only(scene.settle())
    assert (verdict.kind, verdict.parties) == ("deadlock", tuple((rank,) for rank in range(world)))
    assert "sends and receives" in verdict.why.text


def test_a_rank_that_waits_for_a_deadlock_is_no_party_of_it() -> None:
    scene = Scene(4)
    scene.waits([0], "recv", for_s=10, p2p=True, peer=1)
    scene.waits([1], "recv", for_s=10, p2p=True, peer=0)
    scene.waits([2, 3], "all_reduce", for_s=9)
    assert told(scene.settle(), "kind", "parties") == ("deadlock", ((0,), (1,)))


def test_a_receive_from_anybody_is_undecided() -> None:
    scene = Scene(4)
    scene.waits([0], "recv_any_source", for_s=10, p2p=True)
    for rank in (1, 2, 3):
        scene.at(rank, frame("train.py:3"), active=True)
    verdict = only(scene.settle())
    assert verdict.kind == "undecided"


def test_an_op_that_all_have_entered_is_stuck() -> None:
    scene = Scene(4)
    scene.waits(range(4), "all_reduce", for_s=10)
    found = scene.settle()
    assert told(found, "kind", "culprits", "why.cause") == ("stuck", (), "transport")
    assert found.health == "hung"


def test_a_rank_that_was_stopped_after_it_entered_is_named() -> None:
    scene = Scene(4)
    scene.waits(range(4), "all_reduce", for_s=10)
    scene.kernel(2, "T")
    scene.silent(2, 9)
    verdict = only(scene.settle())
    assert (verdict.kind, verdict.culprits, verdict.why.cause) == ("stuck", (2,), "stopped")
    assert verdict.next == "kill -CONT 1002"


def test_two_groups_made_at_once_wait_for_their_own_members() -> None:
    scene = Scene(4)
    scene.in_pseudo([0], "new_group", 31, members="0-1")
    scene.in_pseudo([2], "new_group", 31, members="2-3")
    scene.sleeps(1)
    scene.sleeps(3)
    scene.silent(3, 9)
    found = scene.settle()
    blamed = [(verdict.culprits, fold(verdict.victims)) for verdict in found.verdicts]
    assert sorted(blamed) == [((1,), "0"), ((3,), "2")]


@pytest.mark.parametrize(("kind", "confidence"), [
    ("init_process_group", "confirmed"), ("new_group", "suspect"), ("split_group", "suspect"),
    ("shrink_group", "suspect"),
])  # fmt: skip
def test_without_known_members_an_absence_from_a_new_group_is_a_suspicion(
    kind: str, confidence: str
) -> None:
    scene = Scene(4, begun=0 if kind == "init_process_group" else 7)
    if kind == "init_process_group":
        for actor in scene.actors.values():
            actor.groups.clear()
    scene.in_pseudo([0, 1, 3], kind, for_s=31)
    scene.sleeps(2)
    verdict = only(scene.settle())
    assert (verdict.kind, verdict.culprits, verdict.why.cause) == ("not_entered", (2,), "sleeping")
    assert (verdict.confidence, f"has not entered {kind}" in verdict.headline) == (confidence, True)
    assert any("have to call" in line for line in verdict.missing) is (confidence == "suspect")


@pytest.mark.parametrize(("absent", "hosts", "address", "confidence"), [
    ([2], 1, "node0", "confirmed"),  # between two ranks of a reporting host
    ([3], 1, "node0", "suspect"),  # the job may have another host
    ([3], 1, "127.0.0.1", "confirmed"),
    ([2, 3], 2, "node0", "suspect"),
    ([1, 3], 1, "node0", "suspect"),
])  # fmt: skip
def test_a_rank_that_may_run_on_an_unknown_host_is_only_suspected(
    absent: list[int], hosts: int, address: str, confidence: str
) -> None:
    job = wire.Job(address, 29500, 4, "run", 0, "nonce", "train.py")
    scene = Scene(4, begun=0, hosts=hosts, job=job)
    for actor in scene.actors.values():
        actor.groups.clear()
    scene.in_pseudo(set(range(4)) - set(absent), "init_process_group", for_s=31)
    scene.gone(*absent)
    verdict = only(scene.settle())
    assert (verdict.why.cause, verdict.culprits) == ("never_joined", tuple(absent))
    assert (verdict.confidence, "never appeared" in verdict.why.text) == (confidence, True)


def test_a_member_that_never_made_the_group_has_not_entered() -> None:
    scene = Scene(4)
    scene.group("1", range(4), "late group")
    scene.actors[2].groups.pop(2)
    scene.waits([0, 1, 3], "all_reduce", for_s=31, group="1", number=1, usual_count=0)
    scene.sleeps(2)
    assert only(scene.settle()).culprits == (2,)


def test_ranks_of_a_silent_host_are_never_blamed() -> None:
    scene = Scene(4, hosts=2)
    scene.hear()
    scene.waits([0, 1], "all_reduce", for_s=1)
    scene.deafen(1)
    scene.pass_time(9)
    found = scene.settle()
    verdict = only(found)
    assert (verdict.kind, verdict.culprits) == ("undecided", ())
    assert "ranks 2-3 cannot be seen" in verdict.headline
    assert found.ranks[2].state == "unreachable"
    assert exit_status(found) == 4


def test_a_culprit_is_found_beside_a_silent_host() -> None:
    scene = Scene(6, hosts=3)
    scene.hear()
    scene.waits([0, 1, 4], "all_reduce", for_s=1)
    scene.sleeps(5)
    scene.deafen(1)
    scene.pass_time(9)
    found = scene.settle()
    verdict = only(found)
    assert verdict.culprits == (5,)
    assert exit_status(found) == 3
    assert not found.coverage.complete


@pytest.mark.parametrize("world", [2, 16])
def test_one_absent_rank_is_named_at_any_world_size(world: int) -> None:
    scene = Scene(world, hosts=min(world, 4))
    scene.waits(range(1, world), "all_reduce", for_s=10)
    scene.sleeps(0)
    verdict = only(scene.settle())
    assert verdict.culprits == (0,)


def test_a_stopped_rank_is_named_before_the_wait_is_overdue() -> None:
    scene = Scene(4)
    scene.waits([0, 1], "all_reduce", for_s=1.5, usual_count=0)
    scene.at(3, frame("train.py:3"), active=True)
    scene.kernel(2, "T")
    scene.silent(2, 3)
    assert told(scene.judge().frame, "culprits", "why.cause") == ((2,), "stopped")


def test_a_peer_with_unknown_pending_ops_is_not_blamed() -> None:
    scene = Scene(3)
    scene.waits([0], "recv", for_s=10, p2p=True, peer=1)
    scene.sleeps(1)
    scene.sleeps(2)
    scene.actors[1].pending_more = 3
    assert only(scene.settle()).kind == "undecided"


def test_an_absent_rank_without_a_snapshot_is_not_said_to_move() -> None:
    scene = Scene(80)
    scene.waits(range(8), "all_reduce", for_s=10)
    for rank in range(8, 80):
        scene.sleeps(rank)
    verdict = only(scene.settle(8))
    assert verdict.culprits == tuple(range(8, 72))
    assert "ranks 72-79 also absent; progress unknown" in verdict.evidence


def test_many_moving_ranks_are_confirmed_too() -> None:
    scene = Scene(24)
    scene.waits(range(12), "all_reduce", for_s=10)
    for _ in range(16):
        for rank in range(12, 24):
            scene.at(rank, frame("train.py:3"), active=True)
            scene.kernel(rank, "R", cpu_ns=int(scene.now * SECOND))
        judgement = scene.judge()
        scene.pass_time(0.5)
    verdict = only(judgement.frame)
    assert (len(verdict.culprits), verdict.progress) == (12, "active")
    assert verdict.confidence == "confirmed"


def test_an_op_entered_before_a_host_fell_silent_is_undecided() -> None:
    scene = Scene(4, hosts=2)
    scene.waits(range(4), "all_reduce", for_s=10)
    scene.judge()
    scene.deafen(1)
    found = scene.settle(8)
    verdict = only(found)
    assert (verdict.kind, verdict.culprits) == ("undecided", ())
    assert "ranks 2-3 had entered it" in verdict.headline
    assert exit_status(found) == 4


def test_a_briefly_traced_process_is_not_blamed() -> None:
    scene = Scene(4)
    scene.waits([0, 1, 2], "all_reduce", for_s=1.5, usual_s=1.5)
    scene.kernel(3, "t")
    assert scene.judge().frame.verdicts == ()


def test_the_evidence_lists_the_chain_of_waits() -> None:
    scene = Scene(4)
    scene.group("1", [0, 1], "tensor")
    scene.group("2", [1, 2], "data")
    scene.sleeps(0)
    scene.waits([1], "all_reduce", for_s=9, group="1")
    scene.waits([2], "all_reduce", for_s=8, group="2")
    scene.waits([3], "recv", for_s=7, p2p=True, peer=2)
    verdict = only(scene.settle())
    assert verdict.culprits == (0,)
    assert verdict.evidence[-2:] == (
        "rank 2 waits in all_reduce #1 of data for rank 1",
        "rank 3 waits in recv from rank 2 of default_pg",
    )


def test_a_silent_host_makes_no_wait_older() -> None:
    scene = Scene(4, hosts=2)
    scene.waits([0, 1, 2, 3], "all_reduce", for_s=0.5)
    scene.hear()
    scene.pass_time(2.8)  # too short for the hosts to count as silent
    assert not scene.engine.judge(scene.frame()).frame.verdicts
    scene.hear()
    assert only(scene.engine.judge(scene.frame()).frame).kind == "stuck"


def test_an_update_that_comes_late_makes_no_wait_older() -> None:
    """Frtop itself may be the slow one: then updates queue up, but do come."""
    scene = Scene(4, hosts=2)
    for host, skew in zip(scene.hosts, scene.skews, strict=True):
        time = wire.TimeResponse(0, int((scene.now + skew) * SECOND), 0)
        scene.state.measure_clock(host, scene.now_ns, scene.now_ns, time)
    scene.waits([0, 1, 2, 3], "all_reduce", for_s=0.5)
    scene.hear()
    scene.pass_time(2.8)
    scene.hear(late_s=2.7)
    assert not scene.engine.judge(scene.frame()).frame.verdicts
    scene.hear()
    assert only(scene.engine.judge(scene.frame()).frame).kind == "stuck"


def test_a_wait_that_was_overdue_before_a_short_silence_stays_overdue() -> None:
    scene = one_sleeps(4)
    scene.settle(1)
    scene.pass_time(2)
    assert only(scene.engine.judge(scene.frame()).frame).culprits == (2,)


def pipeline_behind_a_full_queue(**known: object) -> Scene:
    """Stages 0, 2 and 3 wait for messages, and stage 1 in `put`; halves of older ones are left."""
    scene = Scene(4, **known)  # type: ignore[arg-type]
    for rank in range(4):
        before, after = (rank - 1) % 4, (rank + 1) % 4
        # gloo notes the end of a message only where somebody waits for it.
        scene.waits([rank], "send", for_s=30, p2p=True, sync=False, peer=after, tag=0)
        scene.does([rank], "recv", ago=29, p2p=True, peer=before, tag=0)
        if rank != 1:
            scene.waits([rank], "recv", for_s=20, p2p=True, peer=before, tag=0)
    scene.at(1, frame("threading.py:359", "wait"), frame("queue.py:140", "put"))
    return scene


def test_the_nth_receive_waits_for_the_nth_send() -> None:
    found = pipeline_behind_a_full_queue(counts=True).settle()
    verdict = only(found)
    assert (verdict.kind, verdict.culprits) == ("not_entered", (1,))
    assert verdict.confidence == "confirmed"
    assert verdict.headline.startswith("rank 1 (node0 pid 1001) has not sent")
    assert set(verdict.victims) == {0, 2, 3}


def test_without_counts_the_only_rank_in_no_op_is_the_root() -> None:
    verdict = only(pipeline_behind_a_full_queue().settle(8))
    assert (verdict.kind, verdict.culprits) == ("not_entered", (1,))
    assert verdict.confidence == "confirmed"
    assert "rank 1 (node0 pid 1001) is the only rank in no op" in verdict.headline


@pytest.mark.parametrize("what", ["moves", "stands at a store", "two are free", "is unreachable"])
def test_without_counts_a_rank_is_not_blamed_for_being_free(what: str) -> None:
    scene = pipeline_behind_a_full_queue()
    if what == "moves":
        scene.at(1, frame("train.py:40"), active=True)
        scene.kernel(1, "R")
    elif what == "stands at a store":
        scene.at(1, frame("/torch/distributed/distributed_c10d.py:1", "get", "store.get(key)"))
    elif what == "two are free":
        scene.actors[3].pending = []
        scene.sleeps(3)
    else:
        scene.gone(1)
    found = scene.settle()
    assert not any(1 in verdict.culprits for verdict in found.verdicts), found.verdicts
    assert found.health != "healthy"


def test_a_message_of_which_both_halves_were_issued_blames_nobody() -> None:
    scene = Scene(3, counts=True)
    scene.does([0], "send", ago=20, p2p=True, peer=1, tag=0)
    scene.waits([1], "recv", for_s=20, p2p=True, peer=0, tag=0)
    scene.sleeps(0)
    scene.waits([2], "recv", for_s=20, p2p=True, peer=1, tag=0)
    verdict = only(scene.settle())
    assert (verdict.kind, verdict.culprits) == ("undecided", ())
    assert "rank 0 has sent it" in verdict.headline


@pytest.mark.parametrize(("sent", "tag", "taken", "named"), [
    (1, 0, "recv", (0,)),
    (2, 0, "recv", ()),
    (2, 1, "recv", (0,)),
    (0, 0, "recv", (0,)),
    (1, 0, "recv_any_source", ()),  # it may have taken the message
])  # fmt: skip
def test_messages_are_counted_by_tag(
    sent: int, tag: int, taken: str, named: tuple[int, ...]
) -> None:
    scene = Scene(3, counts=True)
    for _ in range(sent):
        scene.does([0], "send", ago=20, p2p=True, peer=1, tag=tag)
    scene.does([1], taken, ago=20, p2p=True, peer=0 if taken == "recv" else None, tag=0)
    scene.waits([1], "recv", for_s=20, p2p=True, peer=0, tag=0)
    scene.sleeps(0)
    scene.sleeps(2)
    assert told(scene.settle(), "culprits", "kind") == (
        named, "not_entered" if named else "undecided",
    )  # fmt: skip


def test_a_send_waits_for_its_receive() -> None:
    scene = Scene(3, counts=True)
    scene.does([1], "recv", ago=20, p2p=True, peer=0, tag=0)
    scene.does([0], "send", ago=20, p2p=True, peer=1, tag=0)
    scene.waits([0], "send", for_s=20, p2p=True, peer=1, tag=0)
    scene.sleeps(1)
    scene.sleeps(2)
    assert only(scene.settle()).culprits == (1,)


def test_a_message_wait_that_is_over_by_its_ranks_own_count_is_not_doubted() -> None:
    scene = Scene(3)
    scene.waits([0], "recv", for_s=20, p2p=True, peer=1)
    scene.waits([1], "send", for_s=20, p2p=True, sync=False, peer=0)
    scene.sleeps(1)
    scene.sleeps(2)
    front = scene.actors[0].group_progress[1]
    moved = wire.GroupProgress(
        1, front.number, 2, scene.actors[0].pending[0].issued_ns + 19 * SECOND
    )
    scene.actors[0].group_progress[1] = moved
    assert not scene.judge().frame.verdicts


def test_who_waits_for_a_message_of_a_deadlock_has_no_verdict_of_its_own() -> None:
    scene = Scene(3)
    scene.group("a", [0, 1], "a")
    scene.group("b", [0, 1], "b")
    scene.waits([0], "all_reduce", for_s=10, group="a")
    scene.waits([1], "all_reduce", for_s=10, group="b")
    scene.waits([1], "send", for_s=30, p2p=True, sync=False, peer=2)  # left over
    scene.waits([2], "recv", for_s=10, p2p=True, peer=1)
    assert only(scene.settle()).kind == "deadlock"


def test_groups_that_are_created_in_different_orders_are_said_to_be() -> None:
    scene = Scene(4)
    scene.in_pseudo([0, 1], "new_group", 40, "0-3")
    scene.in_pseudo([2, 3], "new_group", 40, "1-3,0")
    verdict = only(scene.settle())
    assert verdict.kind == "deadlock"
    assert "groups are created in different orders" in verdict.why.text

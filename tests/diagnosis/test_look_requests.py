"""Which ranks are asked for a snapshot."""

from __future__ import annotations

from diagnosis.scenes import Scene, one_sleeps, three_wait


def test_snapshots_are_requested_of_few_ranks_and_not_too_often() -> None:
    scene = Scene(256)
    scene.waits(range(1, 256), "all_reduce", for_s=10)
    scene.sleeps(0)
    first = scene.judge().look_requests
    assert 1 <= len(first) <= 16
    assert first[0].key == 1
    scene.pass_time(0.5)
    assert not scene.judge().look_requests
    scene.pass_time(0.6)
    assert scene.judge().look_requests


def test_the_awaited_workers_stack_is_requested_too() -> None:
    scene = three_wait()
    scene.fetches(2, worker=1, pid=90112)
    looks = scene.judge().look_requests
    assert looks[0] == ("node0", 3, (90112,), True)


def test_the_stack_of_a_stopped_child_is_requested_too() -> None:
    scene = one_sleeps()
    scene.worker(2, 90111, "S", "futex")
    scene.worker(2, 90112, "T", "")
    scene.settle()
    scene.pass_time(6)
    assert scene.judge().look_requests[0] == ("node0", 3, (90112,), True)


def test_ranks_whose_ops_differ_are_looked_at_at_once() -> None:
    scene = three_wait(1)
    scene.waits([2], "barrier", for_s=1)
    assert {look.key for look in scene.judge().look_requests} == {1, 3}


def test_ranks_whose_ops_differed_are_not_looked_at_while_the_job_goes_on() -> None:
    scene = Scene(4)
    scene.does([0, 1, 3], "all_reduce", number=8, ago=5)
    scene.does([2], "barrier", number=8, ago=5)
    scene.does(range(4), "all_reduce", number=9, ago=1)
    assert not scene.judge().look_requests

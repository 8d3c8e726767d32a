"""Who was called hung and arrived after all is not called so in every round."""

from __future__ import annotations

from diagnosis.scenes import Scene, frame, only
from frtop_tui.job.model import Health


def worker_is_slow(scene: Scene, *, peer: int = 1, for_s: float) -> list[Health]:
    """Rank 0 waits for a worker's answer for so long, then has it; the healths meanwhile."""
    scene.waits([0], "recv", for_s=0, p2p=True, peer=peer)
    scene.sleeps(peer)
    seen: list[Health] = []
    while for_s > 0:
        seen.append(scene.settle(0.5).health)
        for_s -= 0.5
    scene.actors[0].pending.clear()
    scene.actors[0].stack = ()
    seen.append(scene.settle(0.5).health)
    return seen


def test_a_worker_that_takes_as_long_again_is_not_called_hung_again() -> None:
    scene = Scene(3)
    assert "hung" in worker_is_slow(scene, for_s=8)
    for _ in range(3):
        again = worker_is_slow(scene, for_s=9)
        assert set(again) == {"healthy", "held up"}


def test_it_is_called_hung_when_it_takes_as_long_as_at_a_line_of_which_nothing_is_known() -> None:
    scene = Scene(3)
    assert "hung" in worker_is_slow(scene, for_s=8)
    again = worker_is_slow(scene, for_s=36)
    assert "hung" not in again[:58]
    assert "hung" in again


def test_who_was_stopped_and_goes_on_was_no_slow_worker() -> None:
    scene = Scene(3)
    scene.waits([0], "recv", for_s=10, p2p=True, peer=1)
    scene.kernel(1, "T")
    scene.silent(1, 10)
    assert only(scene.settle()).why.cause == "stopped"
    scene.actors[0].pending.clear()
    scene.settle(1)
    assert not scene.engine.memory.false_alarms.sites


def test_of_another_worker_nothing_is_learned() -> None:
    scene = Scene(3)
    assert "hung" in worker_is_slow(scene, for_s=8)
    assert "hung" in worker_is_slow(scene, peer=2, for_s=8)


def test_a_hang_that_ended_by_the_death_of_who_waited_was_one() -> None:
    scene = Scene(3)
    scene.waits([0], "recv", for_s=10, p2p=True, peer=1)
    scene.sleeps(1)
    assert only(scene.settle()).confidence == "confirmed"
    scene.actors[0].pending.clear()
    scene.ends(0, signal=9)
    scene.settle(1)
    assert not scene.engine.memory.false_alarms.sites


def test_of_a_line_that_only_follows_nothing_is_learned() -> None:
    scene = Scene(4)
    scene.waits([0], "all_reduce", for_s=5)
    scene.waits([1], "recv", for_s=5, p2p=True, peer=2, site="train.py:30")
    scene.does([3], "all_reduce")
    scene.does([2], "all_reduce", ago=6)
    scene.sleeps(2)
    assert only(scene.settle(3)).confidence == "confirmed"
    for rank in (0, 1):
        scene.actors[rank].pending.clear()
        scene.actors[rank].stack = ()
    scene.settle(0.5)
    assert [key[1] for key in scene.engine.memory.false_alarms.sites] == [30]


def test_a_hang_in_device_ops_is_not_taken_back_by_the_next_frame() -> None:
    waits = frame("/v/site-packages/torch/cuda/__init__.py:1040", "synchronize")
    scene = Scene(4, backend="nccl")
    for number in range(10):
        scene.does(range(4), "all_reduce", ago=50 - number / 10, tracked=False)
    scene.does([0, 1, 3], "all_reduce", ago=0, tracked=False)
    for rank in (0, 1, 3):
        scene.at(rank, waits, frame("train.py:22"))
    scene.sleeps(2)
    healths = [scene.settle(0.5).health for _ in range(20)]
    assert "hung" in healths
    assert set(healths[healths.index("hung") :]) == {"hung"}

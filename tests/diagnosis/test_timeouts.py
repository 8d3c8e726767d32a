"""The time left is that of each op's own group: an engine's gloo groups have other timeouts."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from diagnosis.scenes import Scene, only
from diagnosis.unprepared import Unprepared


def with_groups(scene: Scene, timeout_s: float) -> Scene:
    """Beside the default group of 1,800 s one of ranks 0 and 3 with its own timeout."""
    scene.timeout_s = timeout_s
    scene.group("cpu", [0, 3], "cpu")
    return scene


@pytest.mark.parametrize("kind", [Scene, Unprepared])
def test_the_group_of_the_op_tells_its_timeout(kind: type[Scene]) -> None:
    scene = with_groups(kind(4), 600)
    scene.waits([3], "all_reduce", for_s=100, group="cpu")
    scene.sleeps(0)
    for rank in (1, 2):
        scene.at(rank)
    assert only(scene.settle(8)).left_s == pytest.approx(500 - 8)


@pytest.mark.parametrize("kind", [Scene, Unprepared])
@pytest.mark.parametrize(("timeout_s", "left_s"), [(120, 20), (7200, 1690)])
def test_of_several_ops_that_wait_for_one_rank_the_first_to_end_counts(
    kind: type[Scene], timeout_s: float, left_s: float
) -> None:
    """Rank 2 sleeps; rank 0 waits for it in the default group, and rank 3 for rank 0."""
    scene = with_groups(kind(4), timeout_s)
    scene.waits([0, 1], "all_reduce", for_s=110)
    scene.waits([3], "barrier", for_s=100, group="cpu")
    scene.sleeps(2)
    verdict = only(scene.settle(8))
    assert verdict.culprits == (2,)
    assert verdict.left_s == pytest.approx(left_s - 8)


@pytest.mark.parametrize("kind", [Scene, Unprepared])
def test_an_op_with_a_timeout_of_its_own_goes_by_that(kind: type[Scene]) -> None:
    scene = with_groups(kind(4), 600)
    scene.waits([3], "all_reduce", for_s=100, group="cpu")
    (op,) = scene.actors[3].pending
    scene.actors[3].pending = [replace(op, timeout_ms=300_000)]
    scene.sleeps(0)
    assert only(scene.settle(8)).left_s == pytest.approx(200 - 8)


def test_a_message_that_only_a_stack_shows_has_the_timeout_of_its_group() -> None:
    scene = Unprepared(4, ago=60)
    with_groups(scene, 600)
    variables = (("src", "0"), ("group", '"cpu"'))
    scene.in_call(3, "recv", variables)
    scene.sleeps(0)
    for rank in (1, 2):
        scene.computes(rank)
    verdict = only(scene.settle(40))
    assert verdict.culprits == (0,)
    assert verdict.left_s == pytest.approx(600 - 60 - 40)


def test_where_no_group_tells_it_nobody_says_how_much_is_left() -> None:
    scene = with_groups(Scene(4), 0)
    scene.waits([3], "all_reduce", for_s=100, group="cpu")
    scene.sleeps(0)
    assert only(scene.settle(8)).left_s is None

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
@pytest.mark.parametrize(("timeout_s", "own_ms", "left_s"), [
    (600, 0, 500 - 8),
    (600, 300_000, 200 - 8),  # the op has a timeout of its own
    (0, 0, None),
])  # fmt: skip
def test_the_op_or_its_group_tells_the_timeout(
    kind: type[Scene], timeout_s: float, own_ms: int, left_s: float | None
) -> None:
    scene = with_groups(kind(4), timeout_s)
    scene.waits([3], "all_reduce", for_s=100, group="cpu")
    (op,) = scene.actors[3].pending
    scene.actors[3].pending = [replace(op, timeout_ms=own_ms)]
    scene.sleeps(0)
    for rank in (1, 2):
        scene.at(rank)
    assert only(scene.settle(8)).left_s == (left_s and pytest.approx(left_s))


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

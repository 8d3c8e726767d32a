"""All have entered, and what hosts send each other is never acknowledged."""

from __future__ import annotations

import pytest

from diagnosis.scenes import Scene, only, told
from frtop_probe import wire
from frtop_probe.ring.rank_ranges import fold


def entered(world: int = 4, *, hosts: int = 4) -> Scene:
    """All sit in the same op; one rank on each host, if there are several."""
    scene = Scene(world, hosts=hosts)
    scene.waits(range(world), "all_reduce", for_s=10)
    return scene


def severs(scene: Scene, one: int, other: int, *, ways: int = 2) -> None:
    """What `one` sends to `other` vanishes, and with two ways the other way round, too."""
    near, far = (scene.actors[rank] for rank in (one, other))
    endpoints = tuple(f"10.0.0.{actor.host}:{4000 + one + other}" for actor in (near, far))
    near.links += (wire.DeadConnection(endpoints[0], endpoints[1], 96, 5),)
    if ways == 2:
        far.links += (wire.DeadConnection(endpoints[1], endpoints[0], 48, 5),)


@pytest.mark.parametrize("ways", [1, 2])
def test_the_host_that_all_dead_links_have_in_common_is_named(ways: int) -> None:
    scene = entered()
    severs(scene, 1, 2, ways=ways)
    severs(scene, 3, 2, ways=ways)
    world_outside = wire.DeadConnection("10.0.0.1:51234", "52.1.2.3:443", 9, 7)
    scene.actors[1].links += (world_outside,)  # which says nothing of the job
    verdict = only(scene.settle())
    assert not any("52.1.2.3" in line for line in verdict.evidence)
    assert (verdict.kind, verdict.confidence, verdict.culprits) == ("stuck", "confirmed", (2,))
    assert (verdict.why.cause, verdict.why.layer) == ("cut_off", "network")
    assert verdict.headline.startswith("rank 2 on node2 cannot be reached")
    assert fold(verdict.victims) == "0-1,3"
    assert any("10.0.0.2:4003 has not acknowledged 96 bytes" in line for line in verdict.evidence)
    assert "ip -s link" in verdict.next


@pytest.mark.parametrize(("links", "says"), [
    ([(1, 2)], "between node1 and node2"),
    ([(0, 1), (2, 3)], "between node0 and node1, node2 and node3"),
])  # fmt: skip
def test_without_an_end_in_common_nobody_is_accused(
    links: list[tuple[int, int]], says: str
) -> None:
    scene = entered()
    for link in links:
        severs(scene, *link)
    verdict = only(scene.settle())
    assert (verdict.kind, verdict.culprits) == ("stuck", ())
    assert says in verdict.why.text


def test_all_ranks_of_a_host_that_is_cut_off_are_named() -> None:
    scene = entered(8, hosts=4)
    on_one = [rank for rank, actor in scene.actors.items() if actor.host == 1]
    others = [rank for rank, actor in scene.actors.items() if actor.host != 1]
    severs(scene, on_one[0], others[0])
    severs(scene, on_one[1], others[-1])
    assert only(scene.settle()).culprits == tuple(on_one)


def test_on_one_host_ranks_take_the_place_of_hosts() -> None:
    scene = entered(hosts=1)
    severs(scene, 1, 2)
    severs(scene, 3, 2)
    verdict = only(scene.settle())
    assert verdict.culprits == (2,)
    assert verdict.headline.startswith("rank 2 cannot be reached")


def test_who_has_not_entered_is_named_whatever_links_are_dead() -> None:
    scene = Scene(4, hosts=4)
    scene.waits([0, 2, 3], "all_reduce", for_s=10)
    scene.sleeps(1)
    severs(scene, 2, 3)
    assert told(scene.settle(), "kind", "culprits") == ("not_entered", (1,))

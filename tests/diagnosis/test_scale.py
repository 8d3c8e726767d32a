"""Many ranks: the right answer, and a bounded number of looks."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from diagnosis.scenes import SECOND, Scene, only
from frtop_probe import wire

LATE = 1_999
WORLDS = [2_048, pytest.param(16_384, marks=pytest.mark.long)]


@pytest.fixture(scope="module", params=WORLDS)
def scene(request: pytest.FixtureRequest) -> Scene:
    """One absent rank of many on 64 hosts, in groups of eight and in eight columns."""
    world: int = request.param
    made = Scene(world, hosts=64)
    for first in range(0, world, 8):
        made.group(f"tp{first}", range(first, first + 8), "tp")
    for column in range(8):
        made.group(f"dp{column}", range(column, world, 8), "dp")
    column = LATE % 8
    waiting = [rank for rank in range(column, world, 8) if rank != LATE]
    made.waits(waiting, "all_reduce", for_s=10, group=f"dp{column}")
    for first in range(0, world, 8):
        others = [rank for rank in range(first, first + 8) if rank % 8 != column]
        made.waits(others, "all_gather", for_s=9, group=f"tp{first}")
    made.sleeps(LATE)
    made.judge()
    return made


def test_one_of_very_many_is_named(scene: Scene) -> None:
    scene.pass_time(1.5)
    scene.judge()
    scene.pass_time(1.5)
    scene.hear()
    judgement = scene.engine.judge(scene.frame())
    assert only(judgement.frame).culprits == (LATE,)
    assert len(judgement.look_requests) <= 16


def test_an_update_of_a_few_changes_what_is_said_of_these_alone(scene: Scene) -> None:
    before = scene.judge().frame
    for host, skew in zip(scene.hosts, scene.skews, strict=True):
        here = [a for a in scene.actors.values() if scene.hosts[a.host] == host][:2]
        at_ns = int((scene.now + skew) * SECOND)
        told = tuple(wire.RankUpdate(a.rank + 1, status=scene.update_of(a).status) for a in here)
        update = wire.Update(host, f"agent-{host}", scene.number + 1, at_ns, 0, told)
        assert scene.state.apply(host, update, scene.now_ns)
    after = scene.engine.judge(scene.frame()).frame
    changed = [rank for rank in after.ranks if after.ranks[rank] is not before.ranks[rank]]
    looked_at = {rank for rank in changed if after.ranks[rank].snapshot is not None}
    assert 128 <= len(changed) <= 128 + len(looked_at)
    assert all(one is other for one, other in zip(after.groups, before.groups, strict=True))
    assert only(after).culprits == (LATE,)


@pytest.mark.parametrize("world", WORLDS)
def test_when_nothing_is_wrong_nobody_is_looked_at(world: int) -> None:
    scene = Scene(world, hosts=64)
    scene.waits(range(0, world, 2), "all_reduce", for_s=0.7)
    scene.hear()
    judgement = scene.engine.judge(scene.frame())
    assert not judgement.frame.verdicts
    assert not judgement.look_requests


MANY = 2048


def receives_in_a_ring(scene: Scene) -> None:
    for rank in range(MANY):
        scene.waits([rank], "recv", for_s=10, p2p=True, peer=(rank - 1) % MANY)


def all_silent_in_one_op(scene: Scene) -> None:
    scene.waits(range(MANY), "all_reduce", for_s=10)
    for rank in range(MANY):
        scene.silent(rank, 10)


def groups_of_eight_are_made(scene: Scene) -> None:
    for first in range(0, MANY, 8):
        members = range(first, first + 8)
        scene.in_pseudo(members[1:], "new_group", 40, f"{first}-{first + 7}")


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("happens", "kind"), [
    (receives_in_a_ring, "deadlock"),
    (all_silent_in_one_op, "stuck"),
    (groups_of_eight_are_made, "not_entered"),
])  # fmt: skip
def test_what_all_have_in_common_costs_no_square_of_them(
    happens: Callable[[Scene], None], kind: str
) -> None:
    scene = Scene(MANY)
    happens(scene)
    begin = time.process_time()
    judged = scene.judge().frame
    assert time.process_time() - begin < 20  # a second at most; squares of these take minutes
    assert {verdict.kind for verdict in judged.verdicts} == {kind}

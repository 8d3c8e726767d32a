"""A few rounds of `make chaos`, and whether it would notice a broken promise."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

import pytest

from chaos.__main__ import abilities, failure, possible_ways, summary
from chaos.hurts import HURTS
from chaos.plan import Able, Plan, Way, plan_of
from chaos.round import Chaos, Result
from chaos.site import Reach
from chaos.stream import AT_FIRST, Gaps
from hosts import network

MOST = 8
"""Hurts in a round: dozens in all."""


@pytest.fixture(scope="module")
def chaos() -> Iterator[Chaos]:
    with Chaos() as chaos:
        yield chaos


@pytest.mark.job
@pytest.mark.timeout(600)
def test_an_agent_and_then_a_rank_are_killed(chaos: Chaos) -> None:
    check(chaos, plan_of(62, ("python",), 3, ()))


@pytest.mark.job
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(20, 26))
def test_a_job_and_its_screens_get_over_what_is_done_to_them(chaos: Chaos, seed: int) -> None:
    check(chaos, plan_of(seed, possible_ways(), MOST, abilities(), hosts=0.0))


@pytest.mark.long
@pytest.mark.hosts
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(12))
def test_so_does_a_job_on_two_hosts(chaos: Chaos, seed: int) -> None:
    able = abilities()
    if "hosts" not in able:
        pytest.skip(network.obstacle())
    check(chaos, plan_of(seed, possible_ways(), MOST, able, hosts=1.0))


def check(chaos: Chaos, plan: Plan) -> None:
    result = chaos.run(plan)
    assert not result.failure, failure(result)


def test_a_seed_is_a_round() -> None:
    ways: tuple[Way, ...] = ("python", "unprepared")
    plans = [plan_of(seed, ways, 8, get_args(Able)) for seed in range(400)]
    assert plans == [plan_of(seed, ways, 8, get_args(Able)) for seed in range(400)]
    assert {deed.name for plan in plans for deed in plan.deeds} == set(HURTS)
    assert {plan.reach for plan in plans} == set(get_args(Reach))
    assert {plan.ranks for plan in plans} == {2, 3, 4}
    assert all(deed.at_s <= deed.until_s for plan in plans for deed in plan.deeds)


def issued(number: int, group: str = "0", **fields: Any) -> dict[str, Any]:
    return {
        "event": "op_issued", "rank": 0, "group": group, "number": number, "exact": True,
        "p2p": False, **fields,
    }  # fmt: skip


def lost(count: int) -> dict[str, Any]:
    return {"event": "lost", "counts": {"op_issued": count}}


@pytest.mark.parametrize(
    ("events", "hidden"),
    [
        ([issued(101), issued(102)], 0),
        ([issued(101), issued(104)], 2),
        ([issued(101), issued(104), issued(103), issued(102)], 0),
        ([issued(101), lost(2), issued(104)], 0),
        ([issued(101), issued(104), lost(1)], 1),
        ([issued(101), issued(101, group="1"), issued(102)], 0),
        ([issued(101), issued(102, group="", exact=False), issued(104)], 1),
        ([issued(101), *[issued(102, group="", exact=False)] * 2, issued(104)], 1),
        ([issued(101), issued(109, p2p=True), issued(109, exact=False), issued(102)], 0),
    ],
)
def test_ops_that_a_screen_leaves_out_have_to_be_counted_by_it(
    events: list[dict[str, Any]], hidden: int
) -> None:
    gaps = Gaps()
    for event in [issued(1), *(issued(n) for n in range(AT_FIRST, 101)), *events]:
        gaps.take(event)
    assert gaps.hidden.partition(",")[0] == (str(hidden) if hidden else "")


def test_a_failure_says_what_was_done_and_how_to_see_it_again() -> None:
    plan = plan_of(11, ("python",), 4, ())
    result = Result(plan, failure="a rank is late")
    assert "--seed 11" in failure(result)
    assert all(deed.name in failure(result) for deed in plan.deeds)
    assert "2 rounds, 1 failed: seeds 11" in summary([result, Result(plan)])

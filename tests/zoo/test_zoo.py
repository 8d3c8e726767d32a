"""Verdicts about programs that hang, die, differ or are healthy: a part of the zoo.

The others run with `-m zoo`, or all of them, several at a time, with `make zoo`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from zoo.ground_truth import Mode
from zoo.runner import Zoo, case_of, missing, names

CHOSEN: tuple[tuple[str, Mode], ...] = (
    ("mismatch/rank_zero", "late"),
    ("slow/data_main", "sync"),
)
UNPREPARED: tuple[tuple[str, Mode], ...] = (("dead/segfault", "sync"),)
PATIENCE = 3.0
"""`make zoo`, which runs alone, has none."""
REST = tuple(
    (name, mode) for name in names() for mode in case_of(name).modes if (name, mode) not in CHOSEN
)


@pytest.fixture(scope="module")
def zoo() -> Iterator[Zoo]:
    with Zoo(patience=PATIENCE) as zoo:
        yield zoo


@pytest.fixture(scope="module")
def unprepared_zoo() -> Iterator[Zoo]:
    with Zoo(prepared=False, patience=PATIENCE) as zoo:
        yield zoo


@pytest.mark.job
@pytest.mark.parametrize(("name", "mode"), CHOSEN)
def test_verdicts_match_the_ground_truth(zoo: Zoo, name: str, mode: Mode) -> None:
    check(zoo, name, mode)


@pytest.mark.long  # `e2e/test_commands.py` always has such a job
@pytest.mark.job
@pytest.mark.parametrize(("name", "mode"), UNPREPARED)
def test_verdicts_without_the_recorder(unprepared_zoo: Zoo, name: str, mode: Mode) -> None:
    outcome = unprepared_zoo.run(name, mode)
    assert outcome.reached == "right", f"{outcome.reason}\n{outcome.details}"


@pytest.mark.zoo
@pytest.mark.parametrize(("name", "mode"), REST)
def test_verdicts_match_in_the_rest_of_the_zoo(zoo: Zoo, name: str, mode: Mode) -> None:
    check(zoo, name, mode)


def check(zoo: Zoo, name: str, mode: Mode) -> None:
    if lacks := missing(case_of(name)):
        pytest.skip(f"needs {lacks}")
    outcome = zoo.run(name, mode)
    print(f"{name} {mode}: who {outcome.who_s} s, confirmed {outcome.confirmed_s} s")
    if outcome.failure:
        pytest.fail(f"{outcome.failure}\n{outcome.log[-3000:]}")

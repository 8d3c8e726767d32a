"""What is said of programs that hang, die, differ or are well is true: some of the zoo.

The others run with `-m zoo`, or all of them, several at a time, with `make zoo`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from zoo.ground_truth import Mode
from zoo.runner import Zoo, case_of, lacking, names

CHOSEN: tuple[tuple[str, Mode], ...] = (
    ("cycle/none_posted_early", "late"),
    ("cycle/opposite_groups", "sync"),
    ("dead/exit_status", "late"),
    ("dead/last_batch", "sync"),
    ("healthy/slow_but_moving", "late"),
    ("mismatch/rank_zero", "late"),
    ("nested/tensor_data_pipeline", "sync"),
    ("not_entered/dataloader_worker", "late"),
    ("not_entered/gil_asleep", "sync"),
    ("several/two_groups", "sync"),
)
REST = tuple(
    (name, mode) for name in names() for mode in case_of(name).modes if (name, mode) not in CHOSEN
)


@pytest.fixture(scope="module")
def zoo() -> Iterator[Zoo]:
    with Zoo() as zoo:
        yield zoo


@pytest.mark.job
@pytest.mark.parametrize(("name", "mode"), CHOSEN)
def test_what_is_said_is_true(zoo: Zoo, name: str, mode: Mode) -> None:
    check(zoo, name, mode)


@pytest.mark.zoo
@pytest.mark.parametrize(("name", "mode"), REST)
def test_so_it_is_of_the_others(zoo: Zoo, name: str, mode: Mode) -> None:
    check(zoo, name, mode)


def check(zoo: Zoo, name: str, mode: Mode) -> None:
    if lacks := lacking(case_of(name)):
        pytest.skip(f"needs {lacks}")
    outcome = zoo.run(name, mode)
    print(f"{name} {mode}: who {outcome.who_s} s, confirmed {outcome.confirmed_s} s")
    if outcome.amiss:
        pytest.fail(f"{outcome.amiss}\n{outcome.log[-3000:]}")

"""A run that is slower than its limits allow is told from noise, and from too little evidence."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

import pytest

from frtop_tui.job.statistics import JobStatistics, StepSplit
from frtop_tui.statistics.limits import Limit, limits_of
from frtop_tui.statistics.regression import Check, blocks, checked, growth, overall
from job_statistics.ranks import MS

RANKS = 4


def run_of(
    took_ms: float = 100.0,
    *,
    noise_ms: float = 1.0,
    steps: int = 200,
    seed: int = 1,
    memory: float = 0.0,
    late: float = 0.0,
    fetches: bool = True,
) -> JobStatistics:
    """Steps of four ranks; rank 2 fetches for `late` ms longer. `memory`: noise that stays."""
    chance, drift = random.Random(seed), 0.0
    split: dict[int, list[StepSplit]] = {rank: [] for rank in range(RANKS)}
    for number in range(steps):
        drift = memory * drift + chance.gauss(0, noise_ms)
        took = round((took_ms + late + drift) * MS)
        for rank in range(RANKS):
            data = round((2 + late * (rank == 2) + chance.random() / 10) * MS)
            split[rank].append(
                StepSplit(number, number * took, took, data if fetches else None, pending_ns=10)
            )
    return JobStatistics(0, 1, 0, steps={rank: tuple(one) for rank, one in split.items()})


def one_check(before: JobStatistics, after: JobStatistics, limits: str) -> Check:
    (found,) = checked(before, after, limits_of(limits))
    return found


@pytest.mark.parametrize(
    ("after", "limit", "result"),
    [
        (run_of(100, seed=2), "step=5%", "within"),
        (run_of(100, seed=2), "step=0%", "undecided"),
        (run_of(110, seed=2), "step=5%", "above"),
        (run_of(104, seed=2), "step=5%", "within"),
        (run_of(105, seed=2), "step=5%", "undecided"),
        (run_of(90, seed=2), "step=0%", "within"),
        (run_of(110, seed=2), "step=5%+8ms", "within"),
        (run_of(110, seed=2), "step=8ms", "above"),
        (run_of(110, noise_ms=60, seed=2), "step=5%", "undecided"),
        (run_of(110, steps=15, seed=2), "step=5%", "undecided"),
        (run_of(150, steps=16, seed=2), "step=5%", "above"),
        (run_of(late=3, seed=2), "data=1ms", "above"),
        (run_of(late=3, seed=2), "data=100%+2ms", "within"),
        (run_of(fetches=False), "data=5%", "undecided"),
        (run_of(seed=2), "communication=0%", "within"),
        (run_of(seed=2), "skew=5%", "undecided"),
        (run_of(steps=0), "step=5%", "undecided"),
    ],
)
def test_a_limit_is_kept_or_not_or_nobody_can_tell(
    after: JobStatistics, limit: str, result: str
) -> None:
    check = one_check(run_of(100), after, limit)
    assert check.result == result, check
    assert bool(check.why) is (result == "undecided")


def test_a_reason_says_what_is_missing() -> None:
    few = one_check(run_of(100), run_of(110, steps=15), "step=5%")
    assert few.why == "too few samples: 15, but at least 16 are needed"
    unknown = one_check(run_of(), run_of(fetches=False), "data=5%")
    assert unknown.why == "not recorded after"
    assert "no line" in one_check(run_of(), run_of(), "transfer=5%").why
    spread = one_check(run_of(), run_of(105, seed=2), "step=5%")
    assert spread.why == "the spread is larger than the difference from the limit"
    assert spread.growth is not None
    assert spread.growth[0] < 0.05 < spread.growth[1]


@pytest.mark.parametrize("memory", [0.0, 0.6])
def test_runs_that_are_alike_are_not_accused(memory: float) -> None:
    """One in 200 would be, if its steps did not depend on each other."""
    results = [
        one_check(run_of(seed=seed, memory=memory), run_of(seed=seed + 1000, memory=memory),
                  "step=0%").result
        for seed in range(100)
    ]  # fmt: skip
    assert results.count("above") <= 3
    assert results.count("within") <= 3


def test_an_interval_has_the_true_growth() -> None:
    inside = 0
    for seed in range(100):
        found = growth(_steps(seed, 100), _steps(seed + 1000, 120))
        assert found is not None
        inside += found[0] <= 0.2 <= found[1]
    assert inside >= 97
    assert growth([1.0] * 7, [1.0] * 100) is None
    assert growth([1.0] * 8, [1.0] * 8) == (0.0, 0.0)
    assert growth([0.0] * 8, [0.0] * 8) == (0.0, 0.0)
    # A hundred checks need more evidence each than eight blocks have.
    assert growth([1.0] * 8, [2.0] * 8, 100_000_000) is None
    assert [len(blocks(range(count))) for count in (0, 1, 15, 16, 64, 5000)] == [0, 0, 7, 8, 32, 32]


def _steps(seed: int, took: float) -> list[float]:
    chance = random.Random(seed)
    return [chance.gauss(took, 5) for _ in range(20)]


def test_only_steps_of_which_all_ranks_tell_count() -> None:
    before = run_of()
    torn = {rank: steps[rank * 10 :] for rank, steps in before.steps.items()}
    found = one_check(before, JobStatistics(0, 1, 0, steps=torn), "step=5%")
    assert found.samples == (200, 170)


def test_checks_together_are_as_good_as_the_worst() -> None:
    def of(results: Sequence[str]) -> str:
        return overall([Check(Limit("step"), result) for result in results])  # type: ignore[arg-type]

    assert of(["within", "above", "undecided"]) == "above"
    assert of(["within", "undecided"]) == "undecided"
    assert of(["within"]) == "within"


def test_limits_are_read() -> None:
    assert limits_of("step=5%, skew = 10%+1ms,data=200us") == (
        Limit("step", 0.05), Limit("skew", 0.1, MS), Limit("data", 0.0, 200_000)
    )  # fmt: skip
    assert [one.words for one in limits_of("step=5%,skew=10%+1ms,own=0%,data=1s")] == [
        "+5 %", "+10 % +1 ms", "+0 %", "+1000 ms"]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "no limit was given"),
        ("steps=5%", "did you mean step?"),
        ("zebra=5%", "figures are step, data"),
        ("step", "'step' is not a limit"),
        ("step=", "not a limit"),
        ("step=5", "not a limit"),
        ("step=-5%", "not a limit"),
        ("step=1.2.3%", "no number"),
        ("step=nan%", "not a limit"),
        ("step=5%,step=6%", "step has two limits"),
        ("step=99999999%", "too much"),
    ],
)
def test_mistakes_in_limits_are_told(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)):
        limits_of(text)

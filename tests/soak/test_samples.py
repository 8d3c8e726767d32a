"""What a soak calls growth: what stays, and not what comes and goes."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import pytest

from soak.__main__ import MIB, grown
from soak.samples import Sample, growth, risen, sample, shifted

HOUR = 3600
KIB = 1024


def run_of(leak: float, noise: int = 0, saw: int = 0) -> list[Sample]:
    """An hour that gains `leak` bytes; memory is given back every 400 s."""
    chance = Random(1)
    return [
        Sample(
            at,
            int(50e6 + leak * at / HOUR + saw * (at % 400) / 400 + chance.uniform(0, noise)),
            9,
            3,
        )
        for at in range(0, HOUR, 5)
    ]


@pytest.mark.parametrize("leak", [0.0, 200.0 * KIB, 2000.0 * KIB])
def test_what_stays_is_found_among_what_comes_and_goes(leak: float) -> None:
    assert growth(run_of(leak)) == pytest.approx(leak, abs=KIB)
    assert growth(run_of(leak, noise=4000 * KIB)) == pytest.approx(leak, abs=200 * KIB)
    assert growth(run_of(leak, saw=8000 * KIB)) == pytest.approx(leak, abs=400 * KIB)


def test_a_peak_is_no_growth_and_a_step_is() -> None:
    assert risen([5, 5, 9, 5, 5, 9, 5, 5, 9]) == 0
    assert risen([5, 5, 9, 5, 6, 6, 6, 6, 9]) == 1
    assert shifted([4, 5, 9, 5, 6, 6, 5, 5, 9]) == 0
    assert shifted([4, 5, 9, 5, 6, 6, 6, 9, 7]) == 2


def test_a_process_is_read_until_it_has_ended(tmp_path: Path) -> None:
    found = sample(os.getpid(), 1.0, tmp_path)
    assert found is not None
    assert found.memory > 2**20
    assert found.descriptors >= 3
    assert found.threads >= 1
    assert sample(2**22 + 1, 1.0, tmp_path) is None


@pytest.mark.parametrize(
    ("memory", "allocated", "said"),
    [
        ({"agent": 0.9}, {}, []),
        ({"agent": 1.1}, {}, ["agent: memory grows by 1.1 MiB an hour"]),
        ({"rank 0": 3.0, "rank 1": 1.5}, {"rank 0": 1.4, "rank 1": 1.4}, []),
        (
            {"rank 0": 2.0, "rank 1": 2.0},
            {"rank 0": 2.2, "rank 1": 1.0},
            ["rank 0, native kernels keeps 1.2 MiB an hour"],
        ),
        (
            {"rank 0": 3.0, "rank 1": 3.2},
            {"rank 0": 1.0, "rank 1": 1.0},
            ["native kernels: memory grows by 1.1 MiB an hour"],
        ),
    ],
)
def test_ranks_are_compared_with_those_without_frtop(
    memory: dict[str, float], allocated: dict[str, float], said: list[str]
) -> None:
    without = {("rank 0, without frtop", 1): 3.0 * MIB, ("rank 1, without frtop", 2): 1.0 * MIB}
    beside = {("rank 0, without frtop", 1): 1.0 * MIB, ("rank 1, without frtop", 2): 1.0 * MIB}

    def named(sizes: dict[str, float]) -> dict[tuple[str, int], float]:
        return {
            (f"{one}, native kernels" if "rank" in one else one, pid): size * MIB
            for pid, (one, size) in enumerate(sizes.items(), 3)
        }

    assert grown(without | named(memory), beside | named(allocated)) == said

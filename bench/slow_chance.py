"""How often chance accuses a rank of a simulated job, and how soon a slow one is found.

Jobs without a straggler are looked at every 5 s for some minutes, as a screen does. Accusations at
the levels of the diagnosis are too rare to count, so it is tested at levels a thousand times as
high: if no more looks accuse a rank than these allow, the true levels hold as well.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median
from typing import Final, NamedTuple
from unittest.mock import patch

from frtop_probe.ring.rank_ranges import fold
from frtop_probe.statistics.samples import is_chosen
from frtop_tui.diagnosis.cases.slow import straggling
from frtop_tui.diagnosis.cases.slow.late_ranks import arrivals_of, late_ranks
from frtop_tui.job.naming import GroupKey
from frtop_tui.job.statistics import JobStatistics, SampledGroup, SampledOp
from frtop_tui.statistics.wanted import FEW_OPS, LONG_WINDOW_S, samples_for

LOOK_S: Final = 5.0
WINDOW_S: Final = 60.0
JOBS: Final = 200
FACTOR: Final = 1e3
LOOKS: Final = 24
LONGEST_S: Final = 600.0
Work = Callable[[random.Random, int], Sequence[float]]
"""Draws, for this many ranks, by how much of one step each is late."""


def gaussian(noise: float) -> Work:
    return lambda dice, ranks: [abs(dice.gauss(0, noise)) for _ in range(ranks)]


def exponential(dice: random.Random, ranks: int) -> Sequence[float]:
    """Lengths that depend on data: late by as much as a step, now and then by several."""
    return [dice.expovariate(1.0) for _ in range(ranks)]


def moving(steps: int) -> Callable[[], Work]:
    """Imbalance: one rank works a step longer, for about `steps` steps; then another rank does."""

    def begin() -> Work:
        hot = [0]

        def work(dice: random.Random, ranks: int) -> Sequence[float]:
            if dice.random() < 1 / steps:
                hot[0] = dice.randrange(ranks)
            return [dice.uniform(0, 0.1) + (rank == hot[0]) for rank in range(ranks)]

        return work

    return begin


class Simulated(NamedTuple):
    """Ranks that reduce once per step of `step_s`; one of them is late by `late` of each step."""

    ranks: int
    step_s: float
    work: Work
    late: float = 0.0
    seed: int = 0


def looks(job: Simulated, most: int) -> Iterator[JobStatistics]:
    """What agents report in one look after another."""
    dice, now, number = random.Random(job.seed), 10_000.0, 0
    window_s = WINDOW_S if WINDOW_S / job.step_s > FEW_OPS else LONG_WINDOW_S
    slices = round(window_s / LOOK_S)
    stride, limit = 1, samples_for([1] * job.ranks, slices)
    while LOOK_S / job.step_s / stride > limit:
        stride *= 2
    ops: list[SampledOp] = []
    everybody = tuple(range(job.ranks))
    end = now
    for _ in range(most):
        end += LOOK_S
        while now < end:
            number += 1
            delays = list(job.work(dice, job.ranks))
            delays[0] += job.late
            arrivals = {rank: now + job.step_s * (1 + delay) for rank, delay in enumerate(delays)}
            now = max(arrivals.values())
            if is_chosen(number, stride):
                times = {rank: round(at * 1e9) for rank, at in arrivals.items()}
                ops.append(
                    SampledOp(
                        number, times, True, "all_reduce", ended_ns=round(now * 1e9), error_ns=0
                    )
                )
        while ops and ops[0].last_ns < (end - window_s) * 1e9:
            ops.pop(0)
        group = SampledGroup(GroupKey("", fold(everybody)), everybody, tuple(ops), stride)
        until = round(end * 1e9)
        yield JobStatistics(until - round(window_s * 1e9), until, 0, everybody, groups=(group,))


def accused(job: Simulated) -> Mapping[bool, int]:
    """In how many looks a rank is found beyond doubt (True), and in how many suspected."""
    found = {True: 0, False: 0}
    for statistics in looks(job, LOOKS):
        group = statistics.groups[0]
        late = late_ranks(statistics, arrivals_of(statistics, group, group.members))
        if late is not None:
            found[late.sure] += 1
    return found


def found_after_s(job: Simulated) -> tuple[float, float]:
    """After how many seconds the late rank is suspected, and when that is sure; -1: never."""
    times = {False: -1.0, True: -1.0}
    for look, statistics in enumerate(looks(job, round(LONGEST_S / LOOK_S)), 1):
        group = statistics.groups[0]
        late = late_ranks(statistics, arrivals_of(statistics, group, group.members))
        if late is not None and late.ranks == (0,):
            if times[False] < 0:
                times[False] = look * LOOK_S
            if late.sure:
                times[True] = look * LOOK_S
                break
    return times[False], times[True]


def report_chance(jobs: int) -> None:
    kinds: Sequence[tuple[str, Callable[[], Work]]] = (
        ("2 % noise", lambda: gaussian(0.02)),
        ("lengths of data", lambda: exponential),
        ("imbalance of 1 step", moving(1)),
        ("imbalance of 5 steps", moving(5)),
        ("imbalance of 20 steps", moving(20)),
    )
    sure, suspected = (
        one._replace(chance=FACTOR * one.chance) for one in (straggling.SURE, straggling.SUSPECTED)
    )
    with (
        patch.object(straggling, "SURE", sure),
        patch.object(straggling, "SUSPECTED", suspected),
    ):
        print(f"{jobs} jobs of each kind, {LOOKS} looks each: share of those that accuse, sure"
              f" and suspected; at most {sure.chance:g}, {suspected.chance:g}")  # fmt: skip
        for name, begin in kinds:
            for step_s in (0.07, 1.0):
                print(f"  {name}, steps of {step_s:g} s: {_accused_of(jobs, begin, step_s)}",
                      flush=True)  # fmt: skip


def _accused_of(jobs: int, begin: Callable[[], Work], step_s: float) -> str:
    found = [
        accused(Simulated((2, 4, 8, 16)[seed % 4], step_s, begin(), seed=seed))
        for seed in range(jobs)
    ]
    shares = (sum(one[sure] for one in found) / jobs / LOOKS for sure in (True, False))
    return ", ".join(f"{share:.2g}" for share in shares)


def report_time() -> None:
    print(
        "seconds until the late one of 4 (8) ranks is suspected / sure, looks every 5 s, noise 2 %"
    )
    for step_s in (0.02, 0.07, 1.0, 10.0):
        cells = []
        for late in (0.05, 0.06, 0.1, 0.5):
            for ranks in (4, 8):
                times = [
                    found_after_s(Simulated(ranks, step_s, gaussian(0.02), late, seed))
                    for seed in range(3)
                ]
                cells.append(
                    f"{late:.0%} of {ranks}: "
                    + " / ".join(f"{median(those):g}" for those in zip(*times, strict=True))
                )
        print(f"  step {step_s:g} s: " + "; ".join(cells), flush=True)


def main() -> None:
    jobs = int(sys.argv[1]) if len(sys.argv) > 1 else JOBS
    report_time()
    report_chance(jobs)


if __name__ == "__main__":
    main()

"""A GPU that is busy at idle power: said beside a verdict, and never one by itself."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from diagnosis.scenes import SECOND, Scene, one_sleeps, only, three_wait
from frtop_probe import wire
from frtop_tui.diagnosis.evidence.gpu_activity import spinning
from frtop_tui.diagnosis.thresholds import GPU_STALE_NS, SPIN_NS, SPIN_SAMPLES
from frtop_tui.job.gpus import SPINS


def gpu(
    *samples: tuple[int | None, float | None],
    limit: float | None = 700,
    idle: float | None = None,
    at_ns: int = 100 * SECOND,
    every_s: float = 2.0,
    **more: Any,
) -> wire.Gpu:
    """A GPU with samples (percent, watts), of which the last was taken `at_ns`."""
    step = int(every_s * SECOND)
    taken = tuple(
        wire.GpuSample(at_ns - step * back, use, None if power is None else int(power * 1000))
        for back, (use, power) in zip(range(len(samples) - 1, -1, -1), samples, strict=True)
    )
    limit_mw = None if limit is None else int(limit * 1000)
    idle_mw = None if idle is None else int(idle * 1000)
    known = {"index": 3, "uuid": "GPU-7d", "name": "NVIDIA H200", **more}
    return wire.Gpu(**known, power_limit_mw=limit_mw, idle_mw=idle_mw, samples=taken)


def steady(use: int | None, power: float | None, **more: Any) -> wire.Gpu:
    return gpu(*((use, power),) * 6, **more)


@pytest.mark.parametrize(
    "one",
    [
        steady(100, 96),
        steady(100, 96, idle=75),
        steady(99, 38, limit=70, idle=31),  # a small GPU: its idle power is half of its limit
        steady(100, 96, idle=500),  # seen just after work: no idle power at all
        gpu((40, 300), (100, 300), *((100, 96),) * SPIN_SAMPLES),  # since a while
    ],
)
def test_busy_at_little_power_spins(one: wire.Gpu) -> None:
    found = spinning(one)
    assert found is not None
    assert found.power_mw == one.samples[-1].power_mw


@pytest.mark.parametrize(
    "one",
    [
        steady(100, 620),
        steady(0, 72),
        steady(60, 96),
        steady(100, 240),  # more than idle, by the limit alone
        steady(100, 205, idle=60),  # a third of the limit would be more
        steady(100, 38, limit=70),  # nobody saw what it takes idle
        steady(100, 96, limit=None, idle=75),
        steady(None, 96),  # as with MIG
        steady(100, None),
        steady(100, 96, mig=True),
        steady(100, 96, error="GPU is lost"),
        gpu(*((100, 96),) * (SPIN_SAMPLES - 1)),
        gpu(*((100, 96),) * 5, (97, 96)),
        gpu(*((100, 96),) * 5, (100, 300)),
        gpu(*((100, 96),) * 5, (None, None)),
        steady(100, 96, every_s=SPIN_NS / SECOND / SPIN_SAMPLES),
        wire.Gpu(3),
    ],
)
def test_what_is_not_conclusive_says_nothing(one: wire.Gpu) -> None:
    assert spinning(one) is None


def uses(scene: Scene, ranks: Iterable[int], age_s: float = 1.0, **more: Any) -> None:
    """Each rank computes on a GPU of its own, or on `uuid`."""
    for rank in ranks:
        actor = scene.actors[rank]
        at_ns = int((scene.now + scene.skews[actor.host] - age_s) * SECOND)
        own = {"uuid": f"GPU-{rank}", "index": rank, "limit": 700}
        actor.gauges = wire.Gauges((steady(100, 96, at_ns=at_ns, **{**own, **more}),))


def stuck() -> Scene:
    """All have entered, on a device whose completion is seen by stacks."""
    scene = Scene(4, hosts=2)
    scene.waits(range(4), "all_reduce", for_s=10)
    return scene


def lines(evidence: Iterable[str]) -> list[str]:
    return [line for line in evidence if "GPU" in line]


def test_beside_a_stuck_op_the_gpus_that_spin_are_one_line() -> None:
    scene = stuck()
    uses(scene, [0, 1, 3])
    verdict = only(scene.settle())
    assert verdict.kind == "stuck"
    assert lines(verdict.evidence) == [
        f"3 GPUs of ranks 0-1,3 are 100 % busy at 96 of 700 W each: {SPINS}"
    ]


@pytest.mark.parametrize(("ranks", "more", "says"), [
    ([3], {}, "GPU 3 of rank 3 is"),
    (range(4), {"uuid": "GPU-7d", "index": 0, "processes": 4}, "GPU 0 of ranks 0-3 is"),
])  # fmt: skip
def test_a_single_gpu_is_named(ranks: Iterable[int], more: dict[str, Any], says: str) -> None:
    scene = Scene(4)
    scene.waits(range(4), "all_reduce", for_s=10)
    uses(scene, ranks, **more)
    (line,) = lines(only(scene.settle()).evidence)
    assert line.startswith(f"{says} 100 % busy at 96 of 700 W: {SPINS}")
    assert ("(shared by 4" in line) == bool(more)


def test_those_who_wait_for_a_late_rank_spin_and_it_is_still_the_late_one() -> None:
    scene = one_sleeps()
    bare = only(scene.settle())
    uses(scene, [0, 1, 3])
    verdict = only(scene.settle())
    assert (verdict.kind, verdict.culprits) == (bare.kind, bare.culprits) == ("not_entered", (2,))
    assert verdict.headline == bare.headline
    assert len(lines(verdict.evidence)) == 1


def test_a_late_rank_that_works_may_have_small_kernels() -> None:
    scene = three_wait()
    for step in range(10):
        scene.pass_time(0.5)
        scene.kernel(2, "R", cpu_ns=step * SECOND)
        uses(scene, range(4))
        found = scene.judge().frame
    verdict = only(found)
    assert (verdict.culprits, verdict.progress) == ((2,), "active")
    (line,) = lines(verdict.evidence)
    assert line.startswith("3 GPUs of ranks 0-1,3 are")


def test_a_gpu_that_spins_is_no_verdict_by_itself() -> None:
    scene = Scene(4)
    uses(scene, range(4))
    assert scene.settle().verdicts == ()


def test_old_figures_and_those_of_the_dead_say_nothing() -> None:
    scene = stuck()
    uses(scene, range(4), age_s=2 * GPU_STALE_NS / SECOND)
    assert lines(only(scene.settle()).evidence) == []

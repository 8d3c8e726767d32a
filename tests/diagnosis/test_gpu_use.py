"""GPUs of a late rank that are seldom busy: the reason only where the evidence supports it."""

from __future__ import annotations

from typing import Any

import pytest

from diagnosis.scenes import Scene, frame, only
from diagnosis.slow_jobs import data_parallel
from diagnosis.test_slow_verdict import SlowScene, slow_job
from frtop_probe import wire
from frtop_tui.diagnosis.model import Frame


def busy(scene: Scene, use: dict[int, int], *, samples: int = 6, **more: Any) -> None:
    """GPUs of all ranks, read every 2 s until now: this many percent, otherwise 90."""
    for rank, actor in scene.actors.items():
        taken = tuple(
            wire.GpuSample(scene._ns(actor, 2.0 * back), use.get(rank, 90), 400_000)
            for back in range(samples - 1, -1, -1)
        )
        fields = {"processes": 1, **(more if rank == 2 else {})}
        gpu = wire.Gpu(rank + 1, f"GPU-{rank}", samples=taken, **fields)
        actor.gauges = wire.Gauges((gpu,))


def said(found: Frame) -> list[str]:
    return [line for line in only(found).evidence if "busy" in line]


def looked(scene: SlowScene, use: dict[int, int], cores: float = 0.2, ready: float = 0) -> Frame:
    """The frame after two looks, with gauges that are as new as the last one."""
    busy(scene, use)
    scene.pass_time(30.1)
    busy(scene, use)
    scene.pass_time(-30.1)
    return scene.looks_of({2: cores}, {2: ready})


def test_a_gpu_that_is_seldom_busy_is_told_without_a_reason_that_nobody_saw() -> None:
    scene = SlowScene(slow_job())
    busy(scene, {2: 12})
    assert said(scene.judge().frame) == ["GPU 3 is 12 % busy, those of the others 90 %"]


@pytest.mark.parametrize("more", [
    {"mig": True}, {"error": "lost"}, {"processes": 2}, {"processes": 0}, {"samples": 3},
])  # fmt: skip
def test_what_is_not_of_this_rank_or_too_short_says_nothing(more: dict[str, Any]) -> None:
    scene = SlowScene(slow_job())
    busy(scene, {2: 12}, **more)
    assert said(scene.judge().frame) == []


def test_a_busy_gpu_and_old_samples_say_nothing() -> None:
    scene = SlowScene(slow_job())
    busy(scene, {2: 60})
    assert said(scene.judge().frame) == []
    busy(scene, {2: 12})
    scene.pass_time(20)
    scene.step()
    assert said(scene.judge().frame) == []


def test_waiting_for_data_explains_it_if_that_takes_most_of_the_idle_time() -> None:
    for data_ms, reason in ((180.0, True), (60.0, False)):
        job = data_parallel()
        job.data = {0: 3.0, 1: 4.0, 2: data_ms, 3: 3.0}
        scene = SlowScene(job.run(150, late={2: 40.0}))
        busy(scene, {2: 12})
        (line,) = said(scene.judge().frame)
        assert ("its host waits for data" in line) is reason


def test_no_processor_explains_it() -> None:
    scene = SlowScene(slow_job())
    found = looked(scene, {2: 20}, ready=0.5)
    (line,) = said(found)
    assert line == (
        "GPU 3 is 20 % busy, those of the others 90 %: its main thread has no processor 50 % of the"
        " time"
    )


@pytest.mark.parametrize(
    ("cores", "file", "reason"),
    [
        (0.99, "/venv/torch/nn/modules/linear.py", "its host does not start kernels fast enough"),
        (0.99, "/home/me/augment.py", "its host is behind: it computes all the time (0.99 cores)"),
        (0.6, "/venv/torch/nn/modules/linear.py", ""),
    ],
)
def test_a_host_that_computes_all_the_time_is_behind(cores: float, file: str, reason: str) -> None:
    scene = SlowScene(slow_job())
    for _ in range(12):
        for rank in scene.actors:
            scene.at(rank, frame(f"{file}:41", "forward", "x = f(x)"), active=True)
        scene.step()
        scene.judge()
        scene.pass_time(1.0)
    (line,) = said(looked(scene, {2: 30}, cores=cores))
    assert line.startswith("GPU 3 is 30 % busy, those of the others 90 %")
    assert (reason in line) if reason else line.endswith("90 %")


def test_gpus_of_ranks_that_wait_for_the_late_one_say_so() -> None:
    scene = SlowScene(data_parallel().run(150, late={2: 400.0}))
    busy(scene, dict.fromkeys(range(4), 20))
    own, others = said(scene.judge().frame)
    assert own == "GPU 3 is 20 % busy"
    assert others.startswith("the GPUs of the others are 20 % busy: their hosts wait for other")

"""Children that are born and die while their rank waits for them."""

from __future__ import annotations

from diagnosis.scenes import SECOND, Scene, frame, only
from frtop_probe import wire
from frtop_tui.job.model import Frame

COMPILER = frame("/venv/lib/python3.11/site-packages/torch/_inductor/codecache.py:9", "result")


def compiling(scene: Scene, cpu_s: float) -> Frame:
    """Four seconds in which rank 2 waits for one compiler of so much CPU time after another."""
    scene.waits([0, 1, 3], "all_reduce", for_s=10)
    scene.at(2, COMPILER)
    for turn in range(9):
        compiler = wire.Process(5000 + turn // 2, "R", "cc1plus", cpu_ns=int(cpu_s * SECOND))
        scene.actors[2].children = [compiler]
        found = scene.settle(0.5)
    return found


def test_who_waits_for_one_compiler_after_the_other_gets_on() -> None:
    scene = Scene(4)
    verdict = only(compiling(scene, 0.8))
    assert (verdict.culprits, verdict.why.cause, verdict.progress) == ((2,), "compiling", "active")


def test_children_that_do_nothing_are_no_progress() -> None:
    scene = Scene(4)
    assert only(compiling(scene, 0.01)).progress == "none"

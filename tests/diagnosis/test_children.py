"""Children that are born and die while their rank waits for them."""

from __future__ import annotations

from diagnosis.scenes import SECOND, Scene, frame, only
from frtop_probe import wire
from frtop_tui.diagnosis.model import Frame

COMPILER = frame("/venv/lib/python3.11/site-packages/torch/_inductor/codecache.py:9", "result")


def compiling(scene: Scene, cpu_s: float) -> Frame:
    """Four seconds in which rank 2 waits for one compiler of so much CPU time after another."""
    scene.waits([0, 1, 3], "all_reduce", for_s=10)
    scene.at(2, COMPILER)
    for update in range(9):
        compiler = wire.Process(5000 + update // 2, "R", "cc1plus", cpu_ns=int(cpu_s * SECOND))
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


FILELOCK = (
    frame("/venv/lib/python3.11/site-packages/filelock/_api.py:1177", "_poll_until_acquired"),
    frame("/venv/lib/python3.11/site-packages/torch/_inductor/codecache.py:3879", "load"),
)


def test_who_waits_for_the_file_that_another_compiles_into_is_not_blamed_while_that_moves() -> None:
    scene = Scene(4)
    scene.at(3, *FILELOCK)
    scene.kernel(3, syscall="clock_nanosleep")
    scene.waits([0, 1], "all_reduce", for_s=10)
    scene.at(2, COMPILER)
    for update in range(9):
        scene.kernel(2, "R", cpu_ns=update * SECOND)
        found = scene.settle(0.5)
    verdict = only(found)
    assert (verdict.culprits, verdict.why.cause, verdict.progress) == ((2,), "compiling", "active")
    assert "rank 3 not there either: kept by a lock or a store" in verdict.evidence
    scene.kernel(2)
    verdicts = scene.settle(6).verdicts
    assert {v.culprits: v.why.cause for v in verdicts} == {(2,): "compiling", (3,): "lock"}

"""Whether an absent rank makes progress between two snapshots, its children included."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from diagnosis.absences import (
    RUNNING,
    absent,
    reads_file,
    runs_unseen,
    saves_checkpoint,
    sleeps,
    stuck_worker,
    waits_for_lock,
)
from diagnosis.scenes import SECOND, Scene, frame, only, three_wait, told
from frtop_probe import wire
from frtop_tui.diagnosis.model import Frame, unjudged
from frtop_tui.text.exit_status import exit_status


@pytest.mark.parametrize("play", RUNNING, ids=lambda p: p.__name__)
def test_a_rank_that_gets_no_processor_is_not_called_hung(
    play: Callable[[Scene], None],
) -> None:
    found = absent(play).settle()
    verdict = only(found)
    assert told(found, "culprits", "confidence", "progress") == ((2,), "confirmed", "unknown")
    assert (found.health, exit_status(found)) == ("held up", 5)
    assert any("got no processor" in line for line in verdict.evidence)


Change = Callable[[Scene, int], None]
"""What is new of rank 2 in each half second."""


def thread(cpu_ns: int, per_s: int = -1) -> Change:
    """Another thread, which is ready to run for so many ns of each second."""

    def change(scene: Scene, step: int) -> None:
        ready_ns = 1 + step * per_s // 2 if per_s >= 0 else -1
        one = wire.Process(1102, "R", "omp", cpu_ns=step * cpu_ns, ready_ns=ready_ns)
        scene.actors[2].threads = (one,)

    return change


def memory(mib: int) -> Change:
    def change(scene: Scene, step: int) -> None:
        scene.actors[2].process = wire.Process(1002, "D", "python", rss=step * mib << 20)

    return change


def little_cpu_time(scene: Scene, step: int) -> None:
    scene.kernel(2, "R", cpu_ns=step * 10_000_000)


def now_and_then(scene: Scene, step: int) -> None:
    scene.kernel(2, "R" if step % 7 == 0 else "S", cpu_ns=step * 10_000_000)


def child(scene: Scene, step: int) -> None:
    scene.actors[2].children = [wire.Process(90113, "R", "nice", cpu_ns=step * 10_000_000)]


def worker_reads(scene: Scene, step: int) -> None:
    worker = scene.actors[2].children[1]
    scene.actors[2].children[1] = replace(worker, io_bytes=step * 1_000_000)


def other_lines(scene: Scene, step: int) -> None:
    scene.at(2, frame(f"train.py:{70 + step}", source="torch.save(state, path)"))


LITTLE = "it was ready to run in both snapshots, and got 2 % of a core"


@pytest.mark.parametrize(("play", "change", "progress", "says"), [
    (runs_unseen, little_cpu_time, "active", LITTLE),
    (sleeps, now_and_then, "none", ""),
    (sleeps, child, "none", ""),
    (stuck_worker, worker_reads, "active", ""),
    (saves_checkpoint, other_lines, "active", ""),
    (reads_file, memory(40), "active", ""),
    (reads_file, memory(2), "none", ""),
    (waits_for_lock, thread(10_000_000), "active", ""),
    (reads_file, thread(0, 300_000_000), "none", ""),  # a transport's: mostly asleep
    (reads_file, thread(5_000_000, 300_000_000), "none", ""),
    (reads_file, thread(0, 0), "unknown", ""),  # never got a processor
    (reads_file, thread(5_000_000, 1_000_000_000), "active", ""),
    (reads_file, thread(5_000_000, 700_000_000), "active", ""),  # waits for the GIL in between
])  # fmt: skip
def test_what_changes_between_two_snapshots_is_progress_or_not(
    play: Callable[[Scene], None], change: Change, progress: str, says: str
) -> None:
    scene = absent(play)
    scene.judge()
    for step in range(20):
        scene.pass_time(0.5)
        change(scene, step)
        found = scene.judge().frame
    verdict = only(found)
    assert verdict.progress == progress
    assert found.health == ("hung" if progress == "none" else "held up")
    assert any(says in line for line in verdict.evidence)


def test_a_first_stack_is_no_change_of_the_stack() -> None:
    scene = absent(sleeps)
    scene.actors[2].dump_error = "deadline"
    for tick in range(16):
        found = scene.judge().frame
        if tick == 4:  # its next stack dumps succeed
            scene.actors[2].dump_error = ""
        scene.pass_time(0.5)
        assert [
            verdict.progress for verdict in found.verdicts if verdict.progress == "active"
        ] == []
    assert (only(found).progress, found.health) == ("none", "hung")


# Children that start and end while their rank waits for them


COMPILER = frame("/venv/lib/python3.11/site-packages/torch/_inductor/codecache.py:9", "result")


def compiling(scene: Scene, cpu_s: float) -> Frame:
    """For 4 s rank 2 waits for one compiler after another; each uses `cpu_s` of CPU time."""
    scene.waits([0, 1, 3], "all_reduce", for_s=10)
    scene.at(2, COMPILER)
    for update in range(9):
        compiler = wire.Process(5000 + update // 2, "R", "cc1plus", cpu_ns=int(cpu_s * SECOND))
        scene.actors[2].children = [compiler]
        found = scene.settle(0.5)
    return found


def test_a_rank_that_starts_one_compiler_after_another_makes_progress() -> None:
    scene = Scene(4)
    verdict = only(compiling(scene, 0.8))
    assert (verdict.culprits, verdict.why.cause, verdict.progress) == ((2,), "compiling", "active")


@pytest.mark.parametrize(("cpu_s", "progress"), [(0.01, "active"), (0.0, "unknown")])
def test_a_compiler_that_gets_hardly_a_processor_leaves_its_rank_in_no_hang(
    cpu_s: float, progress: str
) -> None:
    scene = three_wait()
    scene.at(2, COMPILER)
    found = unjudged(scene.frame())
    for update in range(24):
        cpu_ns = int(update * cpu_s * SECOND)
        scene.actors[2].children = [wire.Process(5000, "R", "cc1plus", cpu_ns=cpu_ns)]
        found = scene.settle(0.5)
    verdict = only(found)
    assert (verdict.culprits, verdict.why.cause) == ((2,), "compiling")
    assert (verdict.progress, found.health) == (progress, "held up")


def test_idle_children_are_no_progress() -> None:
    scene = Scene(4)
    assert only(compiling(scene, 0.01)).progress == "none"


FILELOCK = (
    frame("/venv/lib/python3.11/site-packages/filelock/_api.py:1177", "_poll_until_acquired"),
    frame("/venv/lib/python3.11/site-packages/torch/_inductor/codecache.py:3879", "load"),
)


def test_a_rank_at_the_file_lock_of_a_compiling_rank_is_not_blamed() -> None:
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
    assert "rank 3 also absent: held by a lock or a store key" in verdict.evidence
    scene.kernel(2)
    verdicts = scene.settle(6).verdicts
    assert {v.culprits: v.why.cause for v in verdicts} == {(2,): "compiling", (3,): "lock"}

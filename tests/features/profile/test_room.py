"""A profile where there is little room: the job keeps its part, and nothing stays on or behind."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from features.profile.test_requests import TRAINING, ask, stage
from frtop_probe.features.profile.files import all_files, profile_file
from frtop_probe.ring import layout
from frtop_probe.ring.beside import remove_ring
from recorder.interactive_rank import InteractiveRank, interactive_ranks

pytestmark = pytest.mark.torch
ROOM = 64 << 20
"""Of shared memory in a container, as a rule."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("room") / "rings"
    folder.mkdir(mode=0o700)
    command = ["mount", "-t", "tmpfs", "-o", f"size={ROOM},mode=700", "tmpfs", str(folder)]
    if os.getuid() or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mounting a tmpfs is not possible here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture(scope="module")
def trainer(folder: Path) -> Iterator[InteractiveRank]:
    with interactive_ranks(folder, 1) as (one,):
        one.run(TRAINING)
        yield one


@pytest.fixture
def rank(trainer: InteractiveRank) -> Iterator[InteractiveRank]:
    trainer.run("[one.stop() for one in lifecycle.recorder.features]")
    yield trainer
    fill(trainer.folder, 0)
    assert not any(path.exists() for path in all_files(trainer.ring.path))
    trainer.run("steps(2); assert not recording()")


def fill(folder: Path, size: int) -> None:
    """Leaves `size` bytes less in the folder."""
    filler = folder / "filler"
    filler.unlink(missing_ok=True)
    if size:
        with filler.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, size)


def free(folder: Path) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def test_where_there_is_no_room_none_is_begun(rank: InteractiveRank) -> None:
    fill(rank.folder, free(rank.folder) - (20 << 20))
    told = ask(rank, "begin", steps=1)
    assert told["error"] == "failed"
    assert f"too little room in {rank.folder}: " in told["help"]
    assert "16 MB left to the job" in told["help"]


def test_one_that_fills_up_meanwhile_writes_nothing(rank: InteractiveRank) -> None:
    ask(rank, "begin", steps=1)
    rank.run("steps(1); assert recording()")
    fill(rank.folder, free(rank.folder) - (20 << 20))
    rank.run("steps(3); assert not recording()")
    told = stage(rank, "over")
    assert "the trace was not written: too little room in" in told["help"]


def test_a_disk_that_is_full_while_torch_writes_is_told(rank: InteractiveRank) -> None:
    """The check before saw room, and something else took it."""
    rank.run("""
import frtop_probe.features.profile.in_rank.saving as saving
saved["check"], saving.why_no_room = saving.why_no_room, lambda ring, needed: ""
""")
    ask(rank, "begin", steps=20, shapes=True)
    rank.run("steps(1); assert recording()")
    fill(rank.folder, free(rank.folder) - 8192)
    rank.run("steps(25); assert not recording()")
    told = stage(rank, "over")
    rank.run("saving.why_no_room = saved['check']")
    assert "the trace was not written: torch did not write it to its end" in told["help"]


@pytest.mark.long
def test_an_execution_trace_ends_while_there_is_room_for_the_job(rank: InteractiveRank) -> None:
    ask(rank, "begin", steps=100, execution=True)
    rank.run("steps(2); assert recording()")
    fill(rank.folder, free(rank.folder) - (20 << 20))
    rank.run("""
deadline = time.monotonic() + 30
while recording():
    steps(1)
    assert time.monotonic() < deadline
""")
    told = stage(rank, "over")
    assert "too little room" in told["help"]
    fill(rank.folder, 0)
    rank.run("[one.stop() for one in lifecycle.recorder.features]")
    ask(rank, "begin", steps=1, execution=True)
    rank.run("steps(3)")
    assert "execution" in {
        one["name"] for one in stage(rank, "ready")["files"]
    }  # the observer was free again
    ask(rank, "withdraw")


@pytest.mark.long
def test_an_observer_of_the_script_is_left_alone(rank: InteractiveRank) -> None:
    rank.run(f"""
from torch.profiler import ExecutionTraceObserver
own = ExecutionTraceObserver().register_callback({str(rank.folder / "own.json")!r})
own.start()
""")
    ask(rank, "begin", steps=1, execution=True)
    rank.run("steps(3)")
    told = stage(rank, "ready")
    assert {one["name"] for one in told["files"]} == {"trace"}
    assert "without an execution trace: the script has an observer of its own" in told["help"]
    ask(rank, "withdraw")
    rank.run("own.stop(); own.unregister_callback()")
    assert (rank.folder / "own.json").stat().st_size > 0
    (rank.folder / "own.json").unlink()


@pytest.mark.long
def test_an_observer_that_the_script_registers_meanwhile_is_its_own(rank: InteractiveRank) -> None:
    rank.run("from torch.profiler import ExecutionTraceObserver")
    ask(rank, "begin", steps=50, execution=True)
    rank.run("steps(2); assert recording()")
    rank.run(f"""
own = ExecutionTraceObserver().register_callback({str(rank.folder / "own.json")!r})
assert not recording()
own.start(); steps(1); own.stop(); own.unregister_callback()
""")
    assert "profiles itself" in ask(rank)["help"]
    assert "c10d::allreduce_" in (rank.folder / "own.json").read_text()
    (rank.folder / "own.json").unlink()


def test_a_script_that_profiles_in_another_thread_comes_first(rank: InteractiveRank) -> None:
    ask(rank, "begin", steps=50)
    rank.run("steps(2); assert recording()")
    rank.run("""
def profile():
    with torch.autograd.profiler.profile() as later:
        torch.ones(3).add(1)
    saved["events"] = later.key_averages()
thread = threading.Thread(target=profile)
thread.start()
while thread.is_alive():
    steps(1)
assert saved["events"] and not recording()
""")
    told = ask(rank)
    assert (told["stage"], told["error"]) == ("over", "failed")


def test_one_that_ends_early_is_there_to_be_fetched(rank: InteractiveRank) -> None:
    rank.run("""
import frtop_probe.features.profile.in_rank.requests as requests
saved["most"], requests.MAX_GROWTH = requests.MAX_GROWTH, -(1 << 40)
""")
    ask(rank, "begin", steps=100)
    rank.run("""
deadline = time.monotonic() + 30
steps(1)
while recording():
    steps(1)
    time.sleep(0.02)
    assert time.monotonic() < deadline
requests.MAX_GROWTH = saved["most"]
""")
    told = stage(rank, "ready")
    assert "ended early: the rank had grown" in told["help"]
    rank.wait_for_heartbeats(3)
    assert ask(rank)["stage"] == "ready"
    assert profile_file(rank.ring.path, "trace").exists()
    ask(rank, "withdraw")


def test_a_profiler_that_cannot_go_on_is_stopped(rank: InteractiveRank) -> None:
    """A label that raises stands for whatever torch may raise once it records."""
    ask(rank, "begin", steps=2)
    rank.run("""
kind = torch.autograd.profiler
saved["label"] = kind.record_function
kind.record_function = lambda name: saved["label"](name) if name[:12] != "ProfilerStep" else 1 / 0
steps(2)
kind.record_function = saved["label"]
assert not recording()
""")
    assert "ZeroDivisionError" in stage(rank, "over")["help"]


def test_drafts_of_a_killed_rank_go_with_its_ring(tmp_path: Path) -> None:
    ring = tmp_path / f"12-345{layout.SUFFIX}"
    for path in (ring, *all_files(ring)):
        path.touch()
    assert any(path.name.endswith(".json.tmp") for path in tmp_path.iterdir())
    remove_ring(ring)
    assert list(tmp_path.iterdir()) == []

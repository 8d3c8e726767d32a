"""Known faults beside the verdicts of jobs, live and from files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from msgspec.structs import replace

from connect.scripted_source import ScriptedSource
from diagnosis.scenes import LOCK, Scene, frame, one_sleeps, three_wait
from files.logs.eras import TORCH_2_7, joined, raised
from frtop_probe import wire
from frtop_tui.cli import main
from frtop_tui.diagnosis.model import Frame
from frtop_tui.features.known_faults.notes import known_faults
from frtop_tui.files.formats.reports import html, markdown
from frtop_tui.files.loader import open_paths
from screens import scenes

VERSION: Final = "node1:7:7 [0] NCCL INFO NCCL version {}+cuda12.8"
SEGMENT: Final = (
    "node1:7:9 [0] misc/shmutils.cc:87 NCCL WARN Error while creating shared memory segment"
    " /dev/shm/nccl-a1b2 (size 33030528)"
)
PLUGIN: Final = "node1:7:9 [0] nccl_ofi.c:9 NCCL WARN NET/OFI Request completed with error"
GAVE_UP: Final = (TORCH_2_7.gave_up(0), TORCH_2_7.gave_up(1))
PROXY: Final = ("ncclLocalOpAppend", "ncclProxySaveOp", "ncclLaunchKernel")


def logged(folder: Path, *lines: str) -> Frame:
    path = folder / "slurm-7.out"
    path.write_text(joined(lines, *GAVE_UP))
    return open_paths([path])


def hung_in(*functions: str, torch: str = "2.9.0+cu128") -> Frame:
    """A job that hangs; somebody took native stacks of the culprit."""
    found = scenes.hung()
    (rank,) = found.verdicts[0].culprits
    frames = tuple(wire.TraceFrame(one, "libnccl.so.2", 0) for one in functions)
    thread = wire.ThreadStack(1, 1, "python", active=False, owns_gil=False, frames=frames)
    view = found.ranks[rank]
    pid = view.identity.pid
    response = wire.NativeStacksResponse(
        0, view.host, view.key, 1, 0, wire.StackDump(pid, (thread,))
    )
    view = replace(view, native=response, identity=replace(view.identity, torch=torch))
    ranks = {
        n: replace(v, identity=replace(v.identity, torch=torch)) for n, v in found.ranks.items()
    }
    return replace(found, ranks={**ranks, rank: view})


def test_a_log_has_the_sign_and_the_version(tmp_path: Path) -> None:
    (line,) = known_faults(logged(tmp_path, VERSION.format("2.21.5"), PLUGIN))
    assert line.startswith("matches NCCL 2.26.2, plugins: ")
    assert "NCCL 2.21.5 has it, 2.26.2 does not" in line
    assert known_faults(logged(tmp_path, VERSION.format("2.27.5"), PLUGIN)) == []
    (line,) = known_faults(logged(tmp_path, PLUGIN))
    assert line.startswith("may be NCCL 2.26.2, plugins: ")


def test_an_error_of_torch_has_the_version_too(tmp_path: Path) -> None:
    error = "DistBackendError: NCCL error in: x.cpp:9, internal error, NCCL version {}"
    known = [
        known_faults(logged(tmp_path, PLUGIN, *raised(1, error.format(version))))
        for version in ("2.21.5", "2.27.5")
    ]
    assert [[line.partition(" ")[0] for line in lines] for lines in known] == [["matches"], []]


def test_a_fault_of_the_host_needs_no_version(tmp_path: Path) -> None:
    found = logged(tmp_path, SEGMENT)
    (line,) = known_faults(found)
    assert line.startswith("matches small /dev/shm: ")
    alone = logged(tmp_path)
    assert known_faults(alone) == []
    assert [one.headline for one in found.verdicts] == [one.headline for one in alone.verdicts]


def test_where_an_exception_was_raised_nothing_hangs(tmp_path: Path) -> None:
    old = "Detected kernel version 5.4.0, which is below the recommended minimum of 5.5.0"
    (line,) = known_faults(logged(tmp_path, old))
    assert line.startswith("may be old kernel: ")
    path = tmp_path / "slurm-8.out"
    file = "/opt/vllm/distributed/custom_all_reduce.py"
    path.write_text(joined([old], raised(1, "ValueError: no", file)))
    found = open_paths([path])
    assert [one.kind for one in found.verdicts] == ["dead"]
    assert known_faults(found) == []


def test_a_line_of_a_healthy_log_is_none(tmp_path: Path) -> None:
    path = tmp_path / "slurm-7.out"
    path.write_text(joined([VERSION.format("2.21.5"), SEGMENT]))
    assert known_faults(open_paths([path])) == []


def test_native_stacks_of_a_live_job_have_the_sign() -> None:
    (line,) = known_faults(hung_in(*PROXY))
    assert line.startswith("may be nccl#2353: ")
    assert "torch 2.9 comes with 2.27.5, unless it was replaced" in line
    assert "on condition that hosts are ARM" in line
    assert known_faults(hung_in(*PROXY, torch="2.13.0+cu130")) == []
    assert known_faults(hung_in("ncclLaunchKernel")) == []


def with_nccl(frame: Frame, *versions: str) -> Frame:
    """The frame with ranks that recorded these versions, in turn."""
    ranks = {
        n: replace(view, identity=replace(view.identity, nccl=versions[n % len(versions)]))
        for n, view in frame.ranks.items()
    }
    return replace(frame, ranks=ranks)


def test_the_version_that_ranks_recorded_is_certain() -> None:
    deadlock = hung_in("ncclCommAbort", torch="2.6.0+cu126")
    (line,) = known_faults(deadlock)
    assert line.startswith("may be NCCL 2.26.2, abort: ")
    assert known_faults(with_nccl(deadlock, "2.27.5")) == []
    (line,) = known_faults(with_nccl(deadlock, "2.21.5", "2.27.5"))
    assert line.startswith("matches NCCL 2.26.2, abort: ")
    assert "NCCL 2.21.5 has it, 2.26.2 does not" in line


def test_the_output_of_a_live_job_has_signs_like_a_log() -> None:
    found = scenes.hung()
    (rank,) = found.verdicts[0].culprits
    view = found.ranks[rank]
    file = wire.OutputFile("/srv/job.out", ("stdout",), 100, f"step 3\n{SEGMENT}\nstep 4\n")
    answer = wire.OutputResponse(1, view.host, view.key, 1, (file,))
    (line,) = known_faults(
        replace(found, ranks={**found.ranks, rank: replace(view, output=answer)})
    )
    assert line.startswith("matches small /dev/shm: ")


def test_a_slow_or_healthy_job_has_none() -> None:
    found = hung_in(*PROXY)
    slow = tuple(replace(one, kind="slow") for one in found.verdicts)
    assert known_faults(replace(found, verdicts=slow)) == []
    assert known_faults(replace(found, verdicts=(), health="healthy")) == []


def test_diagnose_and_reports_say_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = hung_in(*PROXY)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr("frtop_tui.cli.live.connect", lambda _: ScriptedSource([found]))
    (line,) = known_faults(found)
    assert main(["diagnose", "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["known_faults"] == [line]
    main(["diagnose"])
    assert f"note  {line}" in capsys.readouterr().out
    logged(tmp_path, SEGMENT)
    main(["diagnose", str(tmp_path / "slurm-7.out")])
    assert "note  matches small /dev/shm" in capsys.readouterr().out
    assert b"Known from elsewhere" in html(found)
    assert b"nccl#2353" in html(found)
    assert b"Known from elsewhere" in markdown(found)
    assert b"Known from elsewhere" not in html(hung_in("ncclLaunchKernel"))


def locked() -> Scene:
    scene = three_wait()
    scene.at(2, *LOCK)
    return scene


def crossed() -> Scene:
    scene = Scene(4)
    scene.group("checkpoint", range(4), "checkpoint")
    scene.waits([0, 2, 3], "all_reduce", for_s=10)
    scene.waits([1], "barrier", for_s=10, group="checkpoint")
    return scene


def mismatched() -> Scene:
    scene = Scene(4)
    scene.waits([0, 1, 2], "all_reduce", for_s=10)
    scene.waits([3], "broadcast", for_s=10, root=0)
    return scene


def gone() -> Scene:
    scene = three_wait()
    scene.gone(2)
    return scene


def silent() -> Scene:
    scene = three_wait()
    scene.silent(2, 10)
    return scene


def raised_one() -> Scene:
    scene = three_wait()
    scene.raises(2, "ValueError", "Expected a number")
    return scene


def gathers() -> Scene:
    scene = Scene(4)
    scene.waits([0, 1], "all_gather_into_tensor", for_s=40)
    scene.at(3, frame("train.py:30", "save"))
    return scene


def all_to_all_of_a_hundred() -> Scene:
    scene = Scene(100)
    scene.waits(range(99), "all_to_all_single", for_s=40)
    scene.sleeps(99)
    return scene


@pytest.mark.parametrize(
    "scene",
    [one_sleeps, three_wait, locked, crossed, mismatched, gone, silent, raised_one, gathers,
     all_to_all_of_a_hundred],
)  # fmt: skip
def test_no_other_hang_is_a_known_fault(scene: Callable[[], Scene]) -> None:
    found = scene().settle()
    assert found.verdicts
    assert known_faults(found) == []


@pytest.mark.parametrize(
    "scene", [scenes.hung, scenes.dead, scenes.two_roots, scenes.healthy, scenes.connecting]
)
def test_nor_is_any_job_that_screens_are_tested_with(scene: Callable[[], Frame]) -> None:
    assert known_faults(scene()) == []

"""`frtop runs`: the runs of a folder of black boxes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec import structs

from diagnosis.scenes import SECOND, Scene
from files.boxes import WALL, BoxRecorder, write_boxes
from frtop_probe import wire
from frtop_probe.agent.gauges.gauge_table import GaugeTable
from frtop_probe.gauges.readings import SubjectReading
from frtop_tui.cli import main
from frtop_tui.job.units import local_time
from json_schemas import read_document

TERM = 15
YESTERDAY = wire.Job("node0", 29500, 4, "run", 0, "n1", "train.py")
TODAY = wire.Job("node0", 29500, 4, "run", 0, "n2", "train.py")


def boxes_of(job: wire.Job, later_s: int, *ends: int | None) -> list[wire.BlackBox]:
    """A run on two hosts whose ranks were ended by these signals one after the other."""
    scene = Scene(4, hosts=2)
    scene.does(range(4), "all_reduce", ago=1)
    scene.job = job
    recorder = BoxRecorder(scene)
    scene.pass_time(60 + later_s)
    for rank, signal in enumerate(ends):
        scene.ends(rank, ago=4 - rank, signal=signal, exit_code=None if signal else 0)
    return recorder.boxes()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for n, own in enumerate(
        (boxes_of(YESTERDAY, 0, None, None, None, None), boxes_of(TODAY, 3600, None, TERM, 9, 9))
    ):
        (tmp_path / str(n)).mkdir()
        write_boxes(tmp_path / str(n), own)
    return tmp_path


def test_runs_are_listed_newest_first_with_how_they_ended(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["runs", str(folder)]) == 0
    _, today, yesterday = capsys.readouterr().out.splitlines()
    assert "train.py" in today
    assert "rank 1 ended by signal 15, then 2 others" in today
    assert today.endswith("n2")
    assert "well" in yesterday
    assert yesterday.endswith("n1")


def test_its_json_has_the_same(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", "--json", str(folder)]) == 0
    today, yesterday = read_document(capsys.readouterr().out, "frtop-runs-1")["runs"]
    assert (today["ranks"], today["hosts"], today["well"]) == (4, 2, False)
    assert [one["rank"] for one in today["failed"]] == [1, 2, 3]
    assert (yesterday["well"], yesterday["name"]) == (True, "n1")


def test_what_it_names_can_be_opened_and_compared(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    both = ["--job", "n1", "--job", "n2"]
    assert main(["diff", str(folder), str(folder), *both, "--json"]) == 0
    assert main(["diff", str(folder), str(folder), *both, "--job", "n3"]) == 2
    assert "more than twice" in capsys.readouterr().err


def test_an_incomplete_box_is_not_called_a_good_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = boxes_of(TODAY, 0)
    write_boxes(tmp_path, [structs.replace(first, complete=False), second])
    assert main(["runs", str(tmp_path)]) == 0
    assert "not seen" in capsys.readouterr().out


def test_a_folder_without_boxes_says_how_to_have_some(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broken.box").write_bytes(b"frtop")
    assert main(["runs", str(tmp_path)]) == 1
    said = capsys.readouterr()
    assert "frtop run --record DIR" in said.out
    assert "broken.box" in said.err


def with_minutes(box: wire.BlackBox, cpu: int) -> wire.BlackBox:
    table = GaugeTable()
    for minute in range(21):
        at_ns = (60 * minute + 1) * SECOND
        table.add(at_ns, [SubjectReading("host", "", {"cpu": cpu})], (), lambda pid: pid)
    return structs.replace(box, minutes=table.minutes(0))


def test_gauges_of_a_run_are_listed_and_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for n, (job, cpu) in enumerate(((YESTERDAY, 400), (TODAY, 120))):
        (tmp_path / str(n)).mkdir()
        boxes = [with_minutes(box, cpu) for box in boxes_of(job, 3600 * n, 0, 0, 0, 0)]
        write_boxes(tmp_path / str(n), boxes)
    assert main(["runs", str(tmp_path)]) == 0
    _, today, yesterday = capsys.readouterr().out.splitlines()
    assert "12 %" in today
    assert "40 %" in yesterday
    assert main(["runs", "--json", str(tmp_path)]) == 0
    assert [(one["cpu"], one["gpu"]) for one in json.loads(capsys.readouterr().out)["runs"]] == [
        (0.12, None), (0.4, None),
    ]  # fmt: skip
    both = [str(tmp_path), str(tmp_path), "--job", "n1", "--job", "n2"]
    assert main(["diff", "--json", *both]) == 0
    gauges = read_document(capsys.readouterr().out, "frtop-diff-1")["gauges"]
    assert gauges["cpu"] == {"before": 400, "after": 120, "noise": 0}


def test_times_are_those_of_the_hosts_clock_as_unix_time(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["runs", str(folder)])
    scene = Scene(4)
    at_ns = int((WALL + scene.now + 60 - 1) * SECOND)
    assert local_time(at_ns) in capsys.readouterr().out

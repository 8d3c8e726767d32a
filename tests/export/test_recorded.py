"""The source of what was recorded: it stays, and says so when it is asked for more."""

from __future__ import annotations

from pathlib import Path

import pytest

from diagnosis.scenes import Scene
from export.boxes import Recorder, written
from frtop_tui.diagnosis.judged import Frame
from frtop_tui.export import capture
from frtop_tui.export.opening import open_paths
from frtop_tui.sources.base import Source
from frtop_tui.sources.recorded import RecordedSource
from screens.scenes import hung


@pytest.fixture
def hang(tmp_path: Path) -> Frame:
    capture.write(tmp_path / "x.cap", hung(), {}, ())
    return open_paths([tmp_path / "x.cap"])


def test_it_stays_as_it_is(hang: Frame) -> None:
    source: Source = RecordedSource(hang)
    source.watch([1])
    source.dump([1])
    source.inspect(1)
    source.choose(None)
    assert source.frame() is hang
    source.close()


def test_what_needs_a_live_job_is_answered(hang: Frame, tmp_path: Path) -> None:
    source = RecordedSource(hang)
    source.save(0, 1, tmp_path / "x")
    (told,) = source.frame().writings
    assert (told.kind, told.state) == ("tensors", "failed")
    assert "no live job" in str(told.problem)


def test_a_capture_is_copied_whole_and_only_when_asked(hang: Frame, tmp_path: Path) -> None:
    source = RecordedSource(hang)
    source.capture(tmp_path / "auto.cap", automatic=True)
    assert not source.frame().writings
    copy = tmp_path / "y.cap"
    source.capture(copy)
    (told,) = source.frame().writings
    assert (told.state, told.size) == ("written", copy.stat().st_size)
    assert copy.stat().st_mode & 0o777 == 0o600
    assert open_paths([copy]).verdicts == hang.verdicts
    source.capture(copy)  # taken by now: never over another
    assert [one.path for one in source.frame().writings] == [str(tmp_path / "y-2.cap")]
    source.capture(tmp_path / "none" / "y.cap")
    (told,) = source.frame().writings
    assert told.state == "failed"
    assert "cannot be written" in str(told.problem)


def test_black_boxes_become_one_capture(tmp_path: Path) -> None:
    scene = Scene(4, hosts=2)
    recorder = Recorder(scene)
    recorder.bad_death_follows()
    scene.pass_time(1)
    scene.raises(2, "ValueError", "loss is nan", ago=0.8)
    written(tmp_path, recorder.boxes())
    source = RecordedSource(open_paths([tmp_path]))
    source.capture(tmp_path / "all.cap")
    found = open_paths([tmp_path / "all.cap"])
    assert found.verdicts == source.frame().verdicts
    assert sorted(found.ranks) == [0, 1, 2, 3]

"""The source of a recorded frame never changes it, and refuses what needs a live job."""

from __future__ import annotations

from pathlib import Path

import pytest

from frtop_probe import wire
from frtop_tui.connect.recorded import RecordedSource
from frtop_tui.connect.source import Source
from frtop_tui.diagnosis.model import Frame
from frtop_tui.files import capture
from frtop_tui.files.loader import open_paths
from screens.scenes import hung


@pytest.fixture
def hang(tmp_path: Path) -> Frame:
    capture.write(tmp_path / "x.cap", hung(), {}, ())
    return open_paths([tmp_path / "x.cap"])


def test_requests_to_a_recorded_source_change_nothing(hang: Frame) -> None:
    source: Source = RecordedSource(hang)
    source.watch([1])
    source.do(wire.ChangeRecording(), [1])
    source.choose(None)
    assert source.frame() is hang
    source.close()


def test_a_capture_is_copied_only_on_request_and_never_over_a_file(
    hang: Frame, tmp_path: Path
) -> None:
    source = RecordedSource(hang)
    source.capture(tmp_path / "auto.cap", automatic=True)
    assert not source.frame().writings
    copy = tmp_path / "y.cap"
    source.capture(copy)
    (writing,) = source.frame().writings
    assert (writing.state, writing.size) == ("written", copy.stat().st_size)
    assert copy.stat().st_mode & 0o777 == 0o600
    assert open_paths([copy]).verdicts == hang.verdicts
    source.capture(copy)  # the path is taken: another one is used
    assert [one.path for one in source.frame().writings] == [str(tmp_path / "y-2.cap")]
    source.capture(tmp_path / "none" / "y.cap")
    (writing,) = source.frame().writings
    assert writing.state == "failed"
    assert "cannot be written" in str(writing.problem)

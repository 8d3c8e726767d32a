"""`frtop open` and `frtop diagnose` on recorded jobs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from frtop_tui.cli import main
from frtop_tui.files import capture
from screens.scenes import dead, healthy, hung


@pytest.fixture
def hang(tmp_path: Path) -> Path:
    path = tmp_path / "hang.cap"
    capture.write(path, hung(), {}, ("rank 5 did not answer",))
    return path


def test_diagnose_prints_verdict_and_time_of_a_capture(
    hang: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["diagnose", str(hang)]) == 3
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("llama-70b: HUNG for 4m12s; 64 of 64 ranks reporting")
    assert said[1].startswith("capture of 20")
    assert said[1].endswith(f": {hang}; all ages are as of that time")
    assert said[2] == "note  rank 5 did not answer"
    assert any("/data/shard-0412" in line for line in said)


def test_the_json_document_names_its_source(hang: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", "--json", str(hang)]) == 3
    found = json.loads(capsys.readouterr().out)
    assert found["recorded"]["kind"] == "capture"
    assert found["recorded"]["path"] == str(hang)
    assert found["recorded"]["at"].startswith("20")
    assert found["verdicts"][0]["culprits"] == [37]


@pytest.mark.parametrize(("scene", "status"), [(hung, 3), (dead, 3), (healthy, 0)])
def test_recorded_jobs_have_the_exit_status_of_live_ones(
    scene: object, status: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert callable(scene)
    capture.write(tmp_path / "x.cap", scene(), {}, ())
    assert main(["diagnose", str(tmp_path)]) == status
    assert capsys.readouterr().out


def test_open_without_a_terminal_names_diagnose(
    hang: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["open", str(hang)]) == 2
    assert f"frtop diagnose {hang}" in capsys.readouterr().err


def test_an_unreadable_file_is_an_error_with_a_next_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "notes.cap").write_text("hello")
    assert main(["diagnose", str(tmp_path / "notes.cap")]) == 1
    said = capsys.readouterr().err
    assert "neither a capture nor a black box" in said
    assert "next:" in said


def test_an_unknown_job_is_an_error_that_lists_the_jobs(
    hang: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["diagnose", str(hang), "--job", "bert"]) == 1
    said = capsys.readouterr().err
    assert "no job is called 'bert': there is llama-70b" in said
    assert "--job llama-70b" in said
    assert main(["diagnose", str(hang), "--job", "r1"]) == 3

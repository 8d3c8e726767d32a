"""Logs beside dumps and captures: they show ranks of which there is nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from files.flightrecorder.writer import one_missing, write_dumps
from files.frames import notes
from files.logs.eras import joined, raised, table
from frtop_probe.ring.rank_ranges import fold
from frtop_tui.diagnosis.model import Frame
from frtop_tui.files.loader import open_paths

KILLED = table((2, -9, "10:11:12"), (0, -15, "10:11:13"), (1, -15, "10:11:13"))
RAISED = raised(2, "KeyError: 'shard'")


def opened(folder: Path, log: list[str], *dumped: int) -> Frame:
    """A job of four that waits for rank 2; some ranks left a dump."""
    write_dumps(folder, [one for one in one_missing(4, culprit=2) if one.rank in dumped])
    (folder / "train.log").write_text(joined(log))
    return open_paths([folder])


def said(frame: Frame) -> list[tuple[str, str]]:
    return [(one.kind, fold(one.culprits)) for one in frame.verdicts]


@pytest.mark.parametrize("log", [KILLED, RAISED], ids=["killed", "raised"])
def test_a_rank_without_a_dump_died_as_its_log_says(tmp_path: Path, log: list[str]) -> None:
    frame = opened(tmp_path, log, 0, 1, 3)
    assert said(frame) == [("dead", "2")]
    assert "rank 2 from logs" in notes(frame)
    assert frame.coverage.complete


def test_a_rank_with_a_dump_is_as_that_says(tmp_path: Path) -> None:
    frame = opened(tmp_path, KILLED, 0, 1, 2, 3)
    assert said(frame) == [("not_entered", "2")]
    assert "exitcode  : -9" in notes(frame)


def test_a_rank_that_no_file_shows_stays_unknown(tmp_path: Path) -> None:
    frame = opened(tmp_path, raised(1, "KeyError: 'other'", hooked=False), 0, 3)
    assert not any(one.culprits for one in frame.verdicts)
    assert frame.coverage.unreachable


def test_logs_of_a_larger_job_are_left_out(tmp_path: Path) -> None:
    frame = opened(tmp_path, table((9, -9, "10:11:12")), 0, 1, 3)
    assert said(frame) == said(opened(tmp_path, ["nothing"], 0, 1, 3))

"""Statistics in the report and in exports."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import msgspec

from connect.fakes import frame_of
from frtop_tui.files.formats.call_table import COLUMNS, call_table
from frtop_tui.files.formats.frame_json import frame_json
from frtop_tui.files.redaction import Redaction
from frtop_tui.text.html_page import html_page
from frtop_tui.text.incident import incident_of
from frtop_tui.text.markdown import markdown
from job_statistics.captures import write
from job_statistics.ranks import MS


def test_the_report_says_where_the_time_goes(tmp_path: Path) -> None:
    incident = incident_of(write(tmp_path / "a.cap"), "0.1")
    for text in (html_page(incident), markdown(incident)):
        assert "Where the time goes" in text
        assert "rank 2: 100 %" in text
        assert "train.py:40" in text
    without = incident_of(frame_of(), "0.1")
    assert "Where the time goes" not in html_page(without) + markdown(without)


def test_calls_are_a_table(tmp_path: Path) -> None:
    frame = write(tmp_path / "a.cap")
    head, row = csv.reader(io.StringIO(call_table(frame).decode()))
    cells = dict(zip(head, row, strict=True))
    assert list(cells) == list(COLUMNS)
    assert cells["file"] == "/srv/train.py"
    assert (cells["skew_ns"], cells["transfer_ns"]) == (str(20 * MS), str(MS))
    assert (cells["last_rank"], cells["count"]) == ("2", "320")
    assert len(call_table(frame_of()).splitlines()) == 1


def test_the_exported_frame_has_them(tmp_path: Path) -> None:
    frame = write(tmp_path / "a.cap")
    plain = msgspec.json.decode(frame_json(frame))["frame"]["statistics"]
    assert plain["calls"][0]["skew_ns"] == 20 * MS
    assert plain["steps"]["2"][0]["took_ns"] == 100 * MS
    assert len(plain["groups"][0]["arrivals"]) == frame.statistics.calls[0].sampled  # type: ignore[union-attr]


def test_redaction_hides_the_path_of_a_line(tmp_path: Path) -> None:
    frame = write(tmp_path / "a.cap")
    hidden = Redaction(frame, "me@here").frame(frame)
    assert hidden.statistics is not None
    assert hidden.statistics.calls[0].skew_ns == 20 * MS
    assert "/srv" not in repr(hidden.statistics)

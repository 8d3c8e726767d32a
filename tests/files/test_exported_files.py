"""`frtop export` of files: what is written, where, and what is left when it fails."""

from __future__ import annotations

import csv
import errno
import io
import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from files.test_recorded_bytes import BOXES, MISMATCH, SLEEPING
from frtop_probe import wire
from frtop_tui.cli import main
from frtop_tui.connect.recorded import RecordedSource
from frtop_tui.errors import NotWritten
from frtop_tui.files.formats.frame_json import frame_json, frame_schema
from frtop_tui.files.formats.op_table import COLUMNS, op_table
from frtop_tui.files.formats.registry import FORMATS
from frtop_tui.files.formats.writing import write_export
from frtop_tui.files.loader import open_paths
from frtop_tui.job.model import UNPREPARED
from screens.rare_scenes import SCENES as ODD
from screens.scenes import SCENES, hung

ROOT = Path(__file__).parents[2]


def test_every_format_has_a_line_in_the_docs() -> None:
    page = (ROOT / "docs" / "export.md").read_text()
    for name in FORMATS:
        assert f"## {name}" in page


@pytest.mark.parametrize("name", sorted(FORMATS.keys() - {"chrome", "html", "markdown"}))
def test_every_frame_can_be_written_in_every_format(name: str) -> None:
    """Of the others, each frame is read: test_traces.py, test_reports.py."""
    for scene in [*SCENES.values(), *ODD.values()]:
        with suppress(NotWritten):  # there may be no stacks
            assert FORMATS[name].encode(scene()) is not None


@pytest.mark.parametrize("name", FORMATS)
def test_recorded_captures_and_boxes_are_exported(name: str, tmp_path: Path) -> None:
    for number, source in enumerate([SLEEPING, MISMATCH, BOXES[0]]):
        path = tmp_path / f"{number}{FORMATS[name].suffix}"
        status = main(["export", str(source), "--format", name, "-o", str(path)])
        assert path.exists() == (status == 0)
        assert status == 0 or name in ("speedscope", "collapsed", "pyspy")  # no stacks there
    assert not [one for one in tmp_path.iterdir() if one.name.startswith(".")]


def test_the_json_is_of_its_schema() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schema = frame_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    for frame in (hung(), open_paths([SLEEPING])):
        validator.validate(json.loads(frame_json(frame)))
    with pytest.raises(jsonschema.ValidationError):
        validator.validate({"schema": "frtop-frame-1", "frtop": "1", "frame": {"now_ns": "soon"}})


def test_the_table_has_one_row_per_rank_and_op() -> None:
    frame = hung()
    rows = list(csv.DictReader(io.StringIO(op_table(frame).decode())))
    assert list(rows[0]) == list(COLUMNS)
    mine = [row for row in rows if row["rank"] == "0"]
    (pending,) = [row for row in mine if row["end"] == "pending"]
    assert pending["number"] == "8812"
    assert pending["kind"] == "all_reduce"
    assert pending["end_unix_ns"] == ""
    done = next(row for row in mine if row["end"] == "exact")
    assert int(done["end_unix_ns"]) - int(done["issued_unix_ns"]) == int(done["took_ns"])
    age_s = (frame.wall_ns - int(pending["issued_unix_ns"])) / 1e9
    assert age_s == pytest.approx(252.0)  # the host's clock is another one


def test_an_op_that_several_sources_tell_of_is_one_row() -> None:
    """From outside, c10d state, its own recorder and the last number name one op each."""
    frame = open_paths([SLEEPING])
    view = frame.ranks[0]
    group = next(iter(view.groups))
    kind = wire.Signature("all_reduce")
    at = view.reported_ns - view.clock_ns - 10**9
    history = (
        wire.Op(-7, group, 7, kind, None, at, tracked=False),
        wire.Op(-5, group, 8, kind, None, at + 1, tracked=False),
    )
    outside = replace(
        view,
        evidence=UNPREPARED,
        identity=msgspec.structs.replace(view.identity, prepared=False),
        snapshot=wire.Snapshot(view.key, at, ops=history),
        group_progress={group: wire.GroupProgress(group, 7, 0, at, wire.Op(0, group, 7, None, None,
                                                                           at, at + 5))},
        pending=(wire.Op(1, group, 8, kind, None, at + 1, dated=False),),
        blocked_on=None,
    )  # fmt: skip
    table = op_table(replace(frame, ranks={0: outside})).decode()
    rows = list(csv.DictReader(io.StringIO(table)))
    found = [(row["number"], row["kind"], row["end"]) for row in rows]
    assert found == [("7", "all_reduce", "unknown"), ("8", "all_reduce", "pending")]


def test_a_text_is_no_formula() -> None:
    table = op_table(open_paths([SLEEPING])).decode()
    assert "\n=" not in table
    from frtop_tui.files.formats.op_table import safe_cell  # noqa: PLC0415

    assert safe_cell("=cmd()") == "'=cmd()"


def test_an_existing_file_is_replaced_only_when_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.md"
    path.write_text("mine")
    words = ["export", str(SLEEPING), "--format", "markdown", "-o", str(path)]
    assert main(words) == 2
    refused = capsys.readouterr().err
    assert "already exists" in refused
    assert "--force" in refused
    assert path.read_text() == "mine"
    assert main([*words, "--force"]) == 0
    assert path.read_text().startswith("# ")


def test_a_full_disk_leaves_the_previous_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fsync(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = tmp_path / "x.html"
    path.write_text("before")
    monkeypatch.setattr(os, "fsync", fsync)
    assert main(["export", str(SLEEPING), "--format", "html", "-o", str(path), "--force"]) == 1
    said = capsys.readouterr().err
    assert "was not written" in said
    assert "make room there" in said
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("name", FORMATS)
def test_impossible_times_are_an_error_or_a_file(name: str, tmp_path: Path) -> None:
    frame = open_paths([SLEEPING])
    view = replace(frame.ranks[0], clock_ns=2**63 - 1, state_since_ns=-(2**63))
    odd = replace(frame, now_ns=-(2**63), wall_ns=2**63 - 1, ranks={**frame.ranks, 0: view})
    path = tmp_path / "x"
    with suppress(NotWritten):
        write_export(path, odd, name, over=False)
        assert path.exists()


def test_the_screen_of_a_file_exports_it(tmp_path: Path) -> None:
    source = RecordedSource(open_paths([SLEEPING]))
    path = tmp_path / "x.html"
    path.write_text("mine")
    source.export(path, "html")
    (written,) = source.frame().writings
    assert written.kind == "export"
    assert written.state == "written"
    assert Path(written.path).name == "x-2.html"
    assert path.read_text() == "mine"
    source.export(tmp_path / "nowhere" / "x.html", "html")
    (failed,) = source.frame().writings
    assert failed.state == "failed"
    assert "was not written: No such file" in str(failed.problem)


def test_a_reader_that_leaves_is_no_error() -> None:
    shell = f"{sys.executable} -m frtop_tui export {SLEEPING} --format csv -o - | head -1"
    done = subprocess.run(["sh", "-c", shell], capture_output=True, timeout=60, check=False)
    assert done.stdout.startswith(b"rank,host")
    assert done.stderr == b""


@pytest.mark.parametrize(("words", "says"), [
    (["--format", "pdf"], "invalid choice"),
    ([str(SLEEPING), "--format", "html", "-o", "/nowhere/x.html"], "there is no folder"),
    ([str(SLEEPING), "--format", "html", "--connect", "node0"], "either files or hosts"),
    (["/nowhere", "--format", "html"], "/nowhere"),
])  # fmt: skip
def test_what_cannot_be_exported_is_said(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", *words]) in (1, 2)
    assert says in capsys.readouterr().err

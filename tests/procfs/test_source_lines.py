"""Lines of source files are cached, and read again when a file changes."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from frtop_probe.procfs.source_lines import SourceLines
from waiting import wait_for


def read(reader: SourceLines, file: str, number: int) -> str:
    reader.request({file})
    wait_for(lambda: reader.is_ready({file}), f"{file} is read")
    return reader.line(file, number)


def test_missing_lines_are_empty(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text("one\n  two\n" + "x" * 500)
    reader = SourceLines()
    assert read(reader, str(file), 2) == "two"
    assert read(reader, str(file), 0) == read(reader, str(file), 4) == ""
    assert len(read(reader, str(file), 3)) == 200
    assert read(reader, str(tmp_path / "none.py"), 1) == ""
    assert read(reader, str(tmp_path), 1) == ""
    assert read(reader, "\0", 1) == ""


def test_a_changed_file_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.py"
    file.write_text("old")
    reader = SourceLines()
    assert read(reader, str(file), 1) == "old"
    file.write_text("newer")
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 60)
    reader.request({str(file)})
    monkeypatch.undo()
    assert read(reader, str(file), 1) == "newer"


def test_the_number_of_cached_files_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("frtop_probe.procfs.source_lines.MAX_FILES", 3)
    reader = SourceLines()
    for number in range(6):
        (tmp_path / f"{number}.py").write_text(str(number))
        assert read(reader, str(tmp_path / f"{number}.py"), 1) == str(number)
    assert reader.line(str(tmp_path / "0.py"), 1) == ""

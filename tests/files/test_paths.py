"""Files are found once each, and every path that cannot be used is reported."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from files.flightrecorder.writer import make_recorders, write_dumps
from frtop_tui.cli import main
from frtop_tui.cli.files import require_writable
from frtop_tui.errors import Unreadable
from frtop_tui.files.loader import open_paths
from frtop_tui.files.paths import Files, files_in

LONG = "a" * 300
"""No file system has such a name."""


def names(files: Files) -> list[str]:
    return [path.name for path in files.dumps]


def test_a_file_reached_by_two_paths_is_read_once(tmp_path: Path) -> None:
    folder = tmp_path / "run3"
    folder.mkdir()
    write_dumps(folder, make_recorders(2))
    (tmp_path / "latest").symlink_to("run3")
    (tmp_path / "nccl_trace_rank_2").write_bytes(b"{}")
    (tmp_path / "itself").symlink_to(".")
    everything, inside = files_in([tmp_path]).dumps, names(files_in([folder, folder / "../latest"]))
    assert sorted(path.name[-1] for path in everything) == ["0", "1", "2"]
    assert everything[0] == tmp_path / "nccl_trace_rank_2"
    assert inside == ["nccl_trace_rank_0", "nccl_trace_rank_1"]


def test_paths_that_are_no_files_are_reported(tmp_path: Path) -> None:
    write_dumps(tmp_path, make_recorders(1))
    (tmp_path / "rank_5").symlink_to("rank_5")
    (tmp_path / "rank_6").mkdir()
    os.mkfifo(tmp_path / "rank_7")
    files = files_in([tmp_path, tmp_path / LONG, tmp_path / LONG / "x"])
    assert names(files) == ["nccl_trace_rank_0"]
    problems = "\n".join(files.problems)
    assert all(name in problems for name in ("rank_5", "rank_7", LONG))
    assert "rank_6" not in problems


def test_an_overlong_name_raises_with_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Unreadable, match="too long"):
        open_paths([Path(LONG)])
    require_writable(Path(f"{LONG}.cap"))  # writing reports it
    assert main(["run", "--", f"./{LONG}"]) == 127
    assert "no such command" in capsys.readouterr().err


def test_a_folder_that_is_listable_but_not_accessible_is_reported(tmp_path: Path) -> None:
    write_dumps(tmp_path, make_recorders(2))
    shut = tmp_path / "shut"
    shut.mkdir()
    write_dumps(shut, make_recorders(1), "other_trace_rank_")
    shut.chmod(0o600)
    try:
        files = files_in([tmp_path])
    finally:
        shut.chmod(0o700)
    assert {"nccl_trace_rank_0", "nccl_trace_rank_1"} <= set(names(files))
    assert "other_trace_rank_0" in names(files) or "Permission denied" in files.problems[0]

"""What is in an archive comes out of it, and no more of it than a file of ours can hold."""

from __future__ import annotations

import os
import zlib
from pathlib import Path

import pytest

from frtop_probe import archive


def test_content_comes_back_whole(tmp_path: Path) -> None:
    file = tmp_path / "a.cap"
    content = bytes(range(256)) * 100_000
    size = archive.write(file, "capture", content)
    assert size == file.stat().st_size
    assert archive.read(file, "capture") == content
    assert file.stat().st_mode & 0o777 == 0o600
    assert [one.name for one in tmp_path.iterdir()] == ["a.cap"]


def test_what_unpacks_to_much_more_than_itself_is_refused_early(tmp_path: Path) -> None:
    file = tmp_path / "bomb.cap"
    bomb = zlib.compressobj(9)
    packed = b"".join(bomb.compress(bytes(1024**2)) for _ in range(200)) + bomb.flush()
    file.write_bytes(archive.MAGIC + b"capture ".ljust(8) + packed)
    assert file.stat().st_size < 1024**2
    with pytest.raises(archive.ArchiveError, match="unpacks to more"):
        archive.read(file, "capture")


def test_a_failed_write_leaves_what_was_there(tmp_path: Path) -> None:
    file = tmp_path / "folder" / "a.cap"
    with pytest.raises(FileNotFoundError):
        archive.write(file, "capture", b"new")
    file.parent.mkdir()
    file.mkdir()
    with pytest.raises(OSError, match="directory"):
        archive.write(file, "capture", b"new")
    assert [one.name for one in file.parent.iterdir()] == ["a.cap"]


def test_what_follows_the_end_is_not_taken_in(tmp_path: Path) -> None:
    file = tmp_path / "long.cap"
    archive.write(file, "capture", b"whole")
    with file.open("ab") as more:
        more.truncate(20 * 1024**3)
    assert archive.read(file, "capture") == b"whole"


@pytest.mark.parametrize("there", ["file", "link"])
def test_a_file_is_replaced_only_on_demand(tmp_path: Path, there: str) -> None:
    file = tmp_path / "a.cap"
    if there == "link":
        file.symlink_to(tmp_path / "nowhere")
    else:
        file.write_text("old")
    with pytest.raises(FileExistsError):
        archive.write(file, "capture", b"new", overwrite=False)
    assert [one.name for one in tmp_path.iterdir()] == ["a.cap"]
    archive.write(file, "capture", b"new")
    assert archive.read(file, "capture") == b"new"
    assert [one.name for one in tmp_path.iterdir()] == ["a.cap"]


def test_a_fifo_is_none_and_keeps_nobody_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.cap")
    assert archive.kind_of(tmp_path / "a.cap") == ""
    with pytest.raises(IsADirectoryError):
        archive.kind_of(tmp_path)

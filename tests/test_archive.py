"""Archives return what was written, within a bounded size, and refuse damaged files."""

from __future__ import annotations

import gzip
import os
import subprocess
import zlib
from pathlib import Path

import pytest

from frtop_probe import archive


def test_content_comes_back_unchanged(tmp_path: Path) -> None:
    file = tmp_path / "a.cap"
    content = bytes(range(256)) * 100_000
    size = archive.write(file, "capture", content)
    assert size == file.stat().st_size
    assert archive.read(file, "capture") == content
    assert file.stat().st_mode & 0o777 == 0o600
    assert [one.name for one in tmp_path.iterdir()] == ["a.cap"]


def test_gzip_and_zcat_open_an_archive(tmp_path: Path) -> None:
    file = tmp_path / "a.cap"
    content = os.urandom(1000) * 1000
    archive.write(file, "blackbox", content)
    assert gzip.decompress(file.read_bytes()) == content
    assert subprocess.run(["zcat", file], capture_output=True, check=True).stdout == content


def test_a_gzip_file_of_others_has_no_kind(tmp_path: Path) -> None:
    file = tmp_path / "a.cap"
    file.write_bytes(gzip.compress(b"content"))
    assert archive.kind_of(file) == ""


def test_a_decompression_bomb_is_refused_early(tmp_path: Path) -> None:
    file = tmp_path / "bomb.cap"
    bomb = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    packed = b"".join(bomb.compress(bytes(1024**2)) for _ in range(80)) + bomb.flush()
    file.write_bytes(archive.MAGIC + b"capture " + packed)
    assert file.stat().st_size < 1024**2
    with pytest.raises(archive.ArchiveError, match="unpacks to more"):
        archive.read(file, "capture")


def test_bytes_after_the_end_are_not_read(tmp_path: Path) -> None:
    file = tmp_path / "long.cap"
    archive.write(file, "capture", b"content")
    with file.open("ab") as more:
        more.truncate(20 * 1024**3)
    assert archive.read(file, "capture") == b"content"


def test_a_fifo_has_no_kind_and_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.cap")
    assert archive.kind_of(tmp_path / "a.cap") == ""
    with pytest.raises(IsADirectoryError):
        archive.kind_of(tmp_path)

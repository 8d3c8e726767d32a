"""Archives return what was written, within a bounded size, and refuse damaged files."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
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


def test_an_archive_of_another_version_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.cap"
    archive.write(file, "capture", b"content")
    file.write_bytes(file.read_bytes().replace(archive.MAGIC, archive.MAGIC[:-1] + b"2"))
    assert archive.kind_of(file) == "capture"
    with pytest.raises(
        archive.UnknownVersion, match=r"a\.cap is a capture in version 2 .* version 1"
    ):
        archive.read(file, "capture")


def test_a_gzip_file_of_others_has_no_kind(tmp_path: Path) -> None:
    file = tmp_path / "a.cap"
    file.write_bytes(gzip.compress(b"content"))
    assert archive.kind_of(file) == ""


def test_a_decompression_bomb_is_refused_early(tmp_path: Path) -> None:
    file = tmp_path / "bomb.cap"
    bomb = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    packed = b"".join(bomb.compress(bytes(1024**2)) for _ in range(200)) + bomb.flush()
    file.write_bytes(archive.MAGIC + b"capture " + packed)
    assert file.stat().st_size < 1024**2
    with pytest.raises(archive.ArchiveError, match="unpacks to more"):
        archive.read(file, "capture")


def test_a_failed_write_leaves_the_existing_file(tmp_path: Path) -> None:
    file = tmp_path / "folder" / "a.cap"
    with pytest.raises(FileNotFoundError):
        archive.write(file, "capture", b"new")
    file.parent.mkdir()
    file.mkdir()
    with pytest.raises(OSError, match="directory"):
        archive.write(file, "capture", b"new")
    assert [one.name for one in file.parent.iterdir()] == ["a.cap"]


def test_bytes_after_the_end_are_not_read(tmp_path: Path) -> None:
    file = tmp_path / "long.cap"
    archive.write(file, "capture", b"content")
    with file.open("ab") as more:
        more.truncate(20 * 1024**3)
    assert archive.read(file, "capture") == b"content"


@pytest.mark.parametrize("there", ["file", "link"])
def test_a_file_is_replaced_only_if_that_is_requested(tmp_path: Path, there: str) -> None:
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


def test_a_fifo_has_no_kind_and_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.cap")
    assert archive.kind_of(tmp_path / "a.cap") == ""
    with pytest.raises(IsADirectoryError):
        archive.kind_of(tmp_path)


FULL_DISK = """
import resource, sys
from pathlib import Path
from frtop_tui.files import capture
from files.test_capture import rows
from screens.scenes import hung
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    capture.write(Path(sys.argv[1]), hung(), {0: rows(500)}, ())
except OSError as error:
    print(error.strerror)
"""


def test_a_disk_that_fills_up_leaves_the_file_that_was_there(tmp_path: Path) -> None:
    path = tmp_path / "x.cap"
    path.write_bytes(b"the capture of yesterday")
    tests = str(Path(__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-B", "-c", FULL_DISK, str(path)],
        capture_output=True, text=True, timeout=60, check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([tests, *sys.path])},
    )  # fmt: skip
    assert done.stdout == "File too large\n"
    assert path.read_bytes() == b"the capture of yesterday"
    assert [one.name for one in tmp_path.iterdir()] == ["x.cap"]

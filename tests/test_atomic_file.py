"""Files appear complete or not at all, also on file systems without hard links."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from frtop_probe import atomic_file


@pytest.fixture(params=["links", "no links"])
def folder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    def link(*_: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    if request.param == "no links":
        monkeypatch.setattr(os, "link", link)
    return tmp_path


def test_a_file_is_private_and_leaves_no_draft(folder: Path) -> None:
    file = folder / "key"
    atomic_file.write(file, b"secret", overwrite=False)
    assert file.read_bytes() == b"secret"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert list(folder.iterdir()) == [file]


@pytest.mark.parametrize("existing", ["file", "dangling link"])
def test_an_existing_file_is_replaced_only_with_overwrite(folder: Path, existing: str) -> None:
    file = folder / "key"
    if existing == "file":
        file.write_bytes(b"old")
    else:
        file.symlink_to(folder / "missing")
    with pytest.raises(FileExistsError):
        atomic_file.write(file, b"new", overwrite=False)
    assert list(folder.iterdir()) == [file]
    atomic_file.write(file, b"new")
    assert file.read_bytes() == b"new"
    assert list(folder.iterdir()) == [file]


def test_a_failed_write_changes_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fsync(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    file = folder / "key"
    file.write_bytes(b"old")
    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OSError, match="No space left"):
        atomic_file.write(file, b"new")
    assert file.read_bytes() == b"old"
    assert list(folder.iterdir()) == [file]

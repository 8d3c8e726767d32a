"""The folder is private to the user, or is refused with a reason and a next step."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from frtop_probe.ring import folder as module
from frtop_probe.ring.folder import FolderError, candidates, claim, folder


def test_a_named_folder_is_made_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRTOP_DIR", str(tmp_path / "mine"))
    assert folder() == tmp_path / "mine"
    assert (tmp_path / "mine").stat().st_mode & 0o777 == 0o700
    assert candidates() == [tmp_path / "mine"]


def test_by_default_shared_memory_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FRTOP_DIR", raising=False)
    monkeypatch.setattr(module, "SHARED_MEMORY", tmp_path)
    monkeypatch.setattr(module, "TEMPORARY", tmp_path / "tmp")
    name = f"frtop-{os.getuid()}"
    assert candidates() == [tmp_path / name]  # the second choice does not exist
    (tmp_path / "tmp").mkdir()
    assert candidates() == [tmp_path / name, tmp_path / "tmp" / name]
    monkeypatch.setattr(module, "SHARED_MEMORY", tmp_path / "none")
    assert folder() == tmp_path / "tmp" / name


def test_the_second_choice_is_used_if_the_first_is_not_private(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any user can create a folder of this name in shared memory."""
    monkeypatch.delenv("FRTOP_DIR", raising=False)
    monkeypatch.setattr(module, "SHARED_MEMORY", tmp_path)
    monkeypatch.setattr(module, "TEMPORARY", tmp_path / "tmp")
    name = f"frtop-{os.getuid()}"
    (tmp_path / name).symlink_to(tmp_path)
    with pytest.raises(FolderError, match=rf"{tmp_path}/{name} is a link"):
        candidates()
    (tmp_path / "tmp").mkdir()
    assert candidates() == [tmp_path / "tmp" / name]


def test_folders_open_to_others_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "path"
    monkeypatch.setenv("FRTOP_DIR", str(path))
    path.mkdir(mode=0o700)
    path.chmod(0o750)
    with pytest.raises(FolderError, match="open to other users; chmod 700"):
        folder()
    path.chmod(0o700)
    path.rename(tmp_path / "real")
    path.symlink_to(tmp_path / "real")
    with pytest.raises(FolderError, match="is a link"):
        folder()
    path.unlink()
    path.write_text("")
    with pytest.raises(FolderError, match="is not a folder"):
        folder()
    monkeypatch.setenv("FRTOP_DIR", str(tmp_path / "no" / "such"))
    with pytest.raises(FolderError, match="cannot be created"):
        folder()


def test_a_folder_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FRTOP_DIR", str(tmp_path / "mine"))
    folder()
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    with pytest.raises(FolderError, match="belongs to user"):
        folder()


@pytest.mark.skipif(os.getuid() != 0, reason="needs to become another user")
def test_a_folder_that_cannot_be_entered_is_refused(tmp_path: Path) -> None:
    """In a child, because only a process that is not root is kept out."""
    tmp_path.chmod(0o700)
    pid = os.fork()
    if pid == 0:
        os.setuid(54321)
        try:
            claim(tmp_path / "mine", make=False)
        except FolderError:
            os._exit(3)
        finally:
            os._exit(4)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 3

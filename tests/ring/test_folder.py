"""The folder is private to the user, or is refused with a reason and a next step."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from frtop_probe.agent.agent_lock import AgentLock
from frtop_probe.ring import folder as module
from frtop_probe.ring import layout
from frtop_probe.ring.folder import (
    AgentFiles,
    FolderError,
    candidates,
    claim,
    existing,
    folder,
    taken,
)


def test_a_named_folder_is_made_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRTOP_DIR", str(tmp_path / "mine"))
    assert folder() == tmp_path / "mine"
    assert (tmp_path / "mine").stat().st_mode & 0o777 == 0o700
    assert candidates() == [tmp_path / "mine"]


NAME = f"frtop-{os.getuid()}"


class Places:
    """The three usual parents, as folders of a test."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("FRTOP_DIR", raising=False)
        self.shared, self.sessions, self.temporary = (root / name for name in ("shm", "run", "tmp"))
        self.session = self.sessions / str(os.getuid())
        self.shared.mkdir()
        self.temporary.mkdir()
        monkeypatch.setattr(module, "SHARED_MEMORY", self.shared)
        monkeypatch.setattr(module, "SESSIONS", self.sessions)
        monkeypatch.setattr(module, "TEMPORARY", self.temporary)

    def log_in(self) -> None:
        self.session.mkdir(parents=True)
        self.session.chmod(0o700)


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Places:
    return Places(tmp_path, monkeypatch)


def test_by_default_shared_memory_comes_first(places: Places) -> None:
    assert candidates() == [places.shared / NAME, places.temporary / NAME]
    places.log_in()
    assert candidates() == [places.shared / NAME, places.session / NAME, places.temporary / NAME]
    assert existing() == candidates()
    assert taken() == ""
    places.session.chmod(0o770)
    assert places.session / NAME not in candidates()
    (places.shared / NAME).rmdir()
    places.shared.rmdir()
    assert folder() == places.temporary / NAME


@pytest.mark.parametrize("logged_in", [False, True])
def test_the_next_choice_is_used_if_the_first_is_not_private(
    places: Places, logged_in: bool
) -> None:
    """Any user can create a folder of this name in shared memory."""
    (places.shared / NAME).symlink_to(places.temporary)
    if logged_in:
        places.log_in()
    used = (places.session if logged_in else places.temporary) / NAME
    assert folder(make=False) == folder() == used
    assert taken() == f"{places.shared / NAME} is a link: not used, rings are in {used}"
    used.rmdir()
    (places.temporary / NAME).rmdir() if logged_in else None
    places.temporary.rmdir()
    if not logged_in:
        with pytest.raises(FolderError, match=rf"{places.shared}/{NAME} is a link; remove it"):
            candidates()


def test_it_is_said_whose_the_folder_is(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    (places.shared / NAME).mkdir(mode=0o700)
    (places.temporary / NAME).mkdir(mode=0o700)
    lstat = Path.lstat

    def of_other(path: Path) -> os.stat_result:
        found = lstat(path)
        if path != places.shared / NAME:
            return found
        return os.stat_result([*found[:4], 12345, *found[5:]])

    monkeypatch.setattr(Path, "lstat", of_other)
    assert taken() == (
        f"{places.shared / NAME} belongs to user 12345: not used, "
        f"rings are in {places.temporary / NAME}"
    )


def test_both_sides_come_to_the_folder_of_the_agent_that_lives(places: Places) -> None:
    """A rank of a batch system sees no /run/user, which the shell of its user has."""
    places.shared.chmod(0)
    (places.shared / NAME).symlink_to(places.shared) if os.getuid() else places.shared.rmdir()
    of_rank = folder()
    assert of_rank == places.temporary / NAME
    places.log_in()
    assert folder() == places.session / NAME  # nothing is there yet
    (of_rank / f"1-1-1{layout.SUFFIX}").touch()
    assert folder() == of_rank
    lock = AgentLock.take(AgentFiles.here(places.session / NAME))
    assert lock is not None
    assert folder() == places.session / NAME
    lock.release()
    assert folder() == of_rank


def test_a_folder_without_room_comes_last(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    found = os.statvfs(places.shared)

    def statvfs(path: Path) -> os.statvfs_result:
        full = path.is_relative_to(places.shared)
        return os.statvfs_result([*found[:4], 0 if full else found[4], *found[5:]])

    monkeypatch.setattr(os, "statvfs", statvfs)
    assert candidates() == [places.temporary / NAME, places.shared / NAME]


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

"""Full or unusable folders: the ring is smaller, elsewhere, or missing, and the program runs."""

from __future__ import annotations

import errno
import os
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Sized
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from frtop_probe.recorder.own_ring import NoRingSpace, OwnRing, create
from frtop_probe.ring import layout
from frtop_probe.ring.layout import Side, StatusCell
from frtop_probe.ring.reader import Ring
from recorder.rank_runner import code, run_python


@pytest.fixture
def tmpfs(tmp_path: Path) -> Iterator[Path]:
    """A tmpfs with room for a small ring only; needs root."""
    folder = tmp_path / "full"
    folder.mkdir()
    size = f"size={layout.SMALL.size + 16384}"
    command = ["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(folder)]
    if os.getuid() or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mounting a tmpfs is not possible here")
    folder.chmod(0o700)
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_small_ring_fits_where_a_full_one_does_not(tmpfs: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir(mode=0o700)
    small = create([tmpfs, other])
    assert small.path.parent == tmpfs
    assert Ring(small.path).shape.slots == layout.SMALL.slots
    reserved = small.shape.size
    small.map[:reserved] = small.map[:reserved]  # every page is reserved: no SIGBUS
    descriptor = os.open(tmpfs / "filler", os.O_WRONLY | os.O_CREAT)
    with suppress(OSError):
        while os.write(descriptor, bytes(4096)):
            pass
    os.close(descriptor)
    small.path.rename(tmpfs / "1-1.ring")  # as if it were another rank's
    moved = create([tmpfs, other])
    assert moved.path.parent == other
    moved.path.unlink()
    with pytest.raises(NoRingSpace, match="No space left"):
        create([tmpfs])
    assert [path.name for path in sorted(tmpfs.iterdir())] == ["1-1.ring", "filler"]


def test_without_room_the_program_runs_and_one_line_gives_the_reason(tmpfs: Path) -> None:
    (tmpfs / "filler").write_bytes(bytes(layout.SMALL.size - 8192))
    program = "import frtop_probe; frtop_probe.start(); frtop_probe.step(); print('trained')"
    done = run_python(tmpfs, *code(program))
    assert (done.returncode, done.stdout) == (0, "trained\n")
    (line,) = done.stderr.splitlines()
    assert line.startswith("frtop: recorder off: ")
    assert "No space left" in line
    assert "set FRTOP_DIR to another folder" in line


def test_a_folder_open_to_others_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o755)
    program = "import frtop_probe; frtop_probe.start(); print('trained')"
    done = run_python(tmp_path / "unused", *code(program), FRTOP_DIR=str(folder))
    assert (done.returncode, done.stdout) == (0, "trained\n")
    assert "open to other users; chmod 700" in done.stderr


NOBODY = 65534
AS_NOBODY = """
import os, sys
import frtop_probe
import frtop_probe.recorder.process.lifecycle  # imported before giving up the right to read it
if not os.getuid():
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
for _ in range(2):
    frtop_probe.start()
    frtop_probe.step()
print("trained")
"""


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that all users may enter, unlike pytest's."""
    with tempfile.TemporaryDirectory(prefix="frtop-test-", dir="/dev/shm") as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder
        for path in folder.iterdir():
            if os.path.ismount(path):
                subprocess.run(["umount", "-l", str(path)], check=True)


def read_only(folder: Path) -> None:
    folder.mkdir()
    os.chown(folder, *(NOBODY if not os.getuid() else os.getuid(),) * 2)
    folder.chmod(0o500)


def mounted_read_only(folder: Path) -> None:
    folder.mkdir()
    options = f"ro,mode=700,uid={NOBODY}"
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    if os.getuid() or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mounting a tmpfs is not possible here")


def owned_by_root(folder: Path) -> None:
    if os.getuid():
        pytest.skip("only root can make another user's folder")
    folder.mkdir(mode=0o700)


def link(folder: Path) -> None:
    folder.symlink_to("/tmp")


def file(folder: Path) -> None:
    folder.write_text("")


def closed_above(folder: Path) -> None:
    if not os.getuid():
        folder.parent.chmod(0o700)
    else:
        folder.parent.chmod(0o500)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (read_only, "Permission denied; set FRTOP_DIR to another folder"),
        (mounted_read_only, "Read-only file system; set FRTOP_DIR to another folder"),
        (owned_by_root, "belongs to user 0; set FRTOP_DIR to a folder of your own"),
        (link, "is a link; remove it, or set FRTOP_DIR"),
        (file, "is not a folder; remove it, or set FRTOP_DIR"),
        (closed_above, "(Permission denied); set FRTOP_DIR to a folder of your own"),
    ],
)
def test_an_unusable_folder_is_reported_once_and_the_program_runs(
    public: Path, make: Callable[[Path], None], reason: str
) -> None:
    folder = public / "named"
    make(folder)
    done = run_python(public, *code(AS_NOBODY), FRTOP_DIR=str(folder))
    public.chmod(0o755)
    assert (done.returncode, done.stdout) == (0, "trained\n")
    (line,) = done.stderr.splitlines()
    assert line.startswith("frtop: recorder off: ")
    assert line.endswith("Training goes on")
    assert reason in line


@pytest.mark.parametrize("function", ["fcntl.lockf", "os.posix_fallocate", "mmap.mmap"])
def test_a_file_system_without_a_needed_feature_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    monkeypatch.setattr(function, refuse)
    with pytest.raises(NoRingSpace, match="not supported; set FRTOP_DIR to another folder"):
        create([tmp_path])
    assert not list(tmp_path.iterdir())


def test_the_program_runs_on_after_its_ring_is_removed(tmp_path: Path) -> None:
    program = """
        import os, pathlib, shutil, time, frtop_probe
        from frtop_probe.recorder.process.lifecycle import lifecycle
        folder = pathlib.Path(os.environ["FRTOP_DIR"])
        frtop_probe.start()
        shutil.rmtree(folder)
        for _ in range(2000):
            frtop_probe.step()
        beats, deadline = lifecycle.recorder.ring.cells[2], time.monotonic() + 10
        while lifecycle.recorder.ring.cells[2] == beats:
            assert time.monotonic() < deadline
        print("trained", lifecycle.recorder.running)
    """
    done = run_python(tmp_path / "frtop", *code(program))
    assert (done.returncode, done.stdout, done.stderr) == (0, "trained True\n", "")


def test_a_program_may_make_groups_all_day(tmp_path: Path) -> None:
    """The side table is written anew beside a reader, who reads at any moment of it."""
    own, over = create([tmp_path]), threading.Event()
    ring, late = Ring(own.path), []

    def read() -> None:
        while not over.is_set():
            ring.refresh()
            late.append(Ring(own.path))
            late[-1].refresh()
            if len(late) > 8:
                late.pop(0).close()

    assert own.write_entry(Side.SITE, 1, ["train.py", 7, "main"])
    assert own.write_entry(Side.GROUP, 1, {"name": 'world,"destroyed":true', "ranks": "0-7"})
    reader = threading.Thread(target=read)
    reader.start()
    made = 8_000
    for group in range(2, made):
        text = {"name": str(group), "description": "evaluation", "ranks": "0-7"}
        assert own.write_entry(Side.GROUP, group, text)
        assert own.write_entry(Side.GROUP, group, {**text, "destroyed": True})
        if not group % 50:
            own.drop_old_entries()
    own.write_entry(Side.FORM, 1, {"kind": "all_reduce"})
    over.set()
    reader.join()
    assert own.cells[StatusCell.SIDE_VERSION] > 1
    late.append(Ring(own.path))
    for one in (ring, *late):
        one.refresh()
        assert max(len(part) for part in vars(one).values() if isinstance(part, Sized)) < 100
        assert list(one.groups) == [1, *range(made - layout.MAX_DESTROYED, made)]
        assert one.sites == {1: ("train.py", 7, "main")}
        assert one.forms == {1: {"kind": "all_reduce"}}
        one.close()


class Overtaken:
    """A lock that another thread takes first."""

    def __init__(self, lock: Any, other: Callable[[], None]) -> None:
        self.lock, self.others = lock, [other]

    def __enter__(self) -> None:
        while self.others:
            self.others.pop()()
        self.lock.acquire()

    def __exit__(self, *_: object) -> None:
        self.lock.release()


def test_groups_destroyed_while_the_side_table_is_written_anew_stay_destroyed(
    tmp_path: Path,
) -> None:
    own, groups = create([tmp_path]), range(1, 3 * layout.MAX_DESTROYED)

    def destroy_all() -> None:
        for group in groups:
            assert own.write_entry(Side.GROUP, group, {"name": str(group), "destroyed": True})

    for group in groups:
        assert own.write_entry(Side.GROUP, group, {"name": str(group)})
    early = Ring(own.path)
    own._full, own._lock = 0, Overtaken(own._lock, destroy_all)  # type: ignore[assignment]
    own.drop_old_entries()
    early.refresh()
    late = Ring(own.path)
    assert list(early.groups) == list(late.groups) == list(groups[-layout.MAX_DESTROYED :])
    for ring in (early, late):
        ring.close()


def fill_with_notes(own: OwnRing) -> None:
    for number in range(3000):
        own.write_note(f"batch {number} of the first epoch")
        own.drop_old_entries()


def fill_with_exceptions(own: OwnRing) -> None:
    for number in range(1, 300):
        own.write_entry(Side.EXCEPTION, number, {"kind": "ValueError", "text": "x" * 500})
        own.drop_old_entries()


def fill_with_identities(own: OwnRing) -> None:
    for attempt in range(300):
        own.write_entry(Side.IDENTITY, 0, {"rank": attempt, "argv": "x" * 500})
        own.drop_old_entries()


def fill_with_sites_and_groups(own: OwnRing) -> None:
    for number in range(3000):
        own.write_entry(Side.SITE, number, ["train.py", number, "x" * 40])
    for number in range(2, 440):
        own.write_entry(Side.GROUP, number, {"name": "x" * 100})
        own.drop_old_entries()


@pytest.mark.parametrize(
    "fill",
    [fill_with_notes, fill_with_exceptions, fill_with_identities, fill_with_sites_and_groups],
)
def test_new_groups_find_room_whatever_fills_the_side_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fill: Callable[[OwnRing], None]
) -> None:
    monkeypatch.setattr(layout, "FULL", layout.SMALL)
    own = create([tmp_path])
    early = Ring(own.path)
    assert own.write_entry(Side.GROUP, 1, {"name": "world"})
    fill(own)
    for group in range(1000, 2000):
        assert own.write_entry(Side.GROUP, group, {"name": str(group)})
        assert own.write_entry(Side.GROUP, group, {"name": str(group), "destroyed": True})
        own.drop_old_entries()
    early.refresh()
    late = Ring(own.path)
    assert {1, *range(2000 - layout.MAX_DESTROYED, 2000)} <= early.groups.keys()
    assert (early.groups, early.rank_identity) == (late.groups, late.rank_identity)
    assert (early.notes, early.exceptions) == (late.notes, late.exceptions)
    assert list(late.notes)[-1:] == ([3000] if fill is fill_with_notes else [])
    for ring in (early, late):
        ring.close()

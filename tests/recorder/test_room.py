"""A full shared memory makes the ring smaller, or moves it, or leaves the rank without."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from frtop_probe.recorder.writer import NoRoom, create
from frtop_probe.ring import layout
from frtop_probe.ring.reader import Ring
from recorder.world import environment


@pytest.fixture
def tmpfs(tmp_path: Path) -> Iterator[Path]:
    """A real tmpfs with room for a small ring only; it needs root."""
    place = tmp_path / "full"
    place.mkdir()
    size = f"size={layout.SMALL.size + 16384}"
    command = ["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(place)]
    if os.getuid() or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mounting a tmpfs is not possible here")
    place.chmod(0o700)
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_small_ring_fits_where_a_full_one_does_not(tmpfs: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir(mode=0o700)
    small = create([tmpfs, other])
    assert small.path.parent == tmpfs
    assert Ring(small.path).shape.slots == layout.SMALL.slots
    small.map[:] = small.map[:]  # every page is there: no SIGBUS
    descriptor = os.open(tmpfs / "filler", os.O_WRONLY | os.O_CREAT)
    with suppress(OSError):
        while os.write(descriptor, bytes(4096)):
            pass
    os.close(descriptor)
    small.path.rename(tmpfs / "1-1.ring")  # another rank's, as it were
    moved = create([tmpfs, other])
    assert moved.path.parent == other
    moved.path.unlink()
    with pytest.raises(NoRoom, match="No space left"):
        create([tmpfs])
    assert [path.name for path in sorted(tmpfs.iterdir())] == ["1-1.ring", "filler"]


def test_without_room_the_program_runs_and_one_line_says_why(tmpfs: Path) -> None:
    (tmpfs / "filler").write_bytes(bytes(layout.SMALL.size - 8192))
    program = "import frtop_probe; frtop_probe.start(); frtop_probe.step(); print('trained')"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment(tmpfs, RANK="0"),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "trained\n")
    (line,) = done.stderr.splitlines()
    assert line.startswith("frtop: recorder off: ")
    assert "No space left" in line
    assert "set FRTOP_DIR to another folder" in line


def test_a_folder_of_somebody_else_is_no_place(tmp_path: Path) -> None:
    place = tmp_path / "open"
    place.mkdir()
    place.chmod(0o755)
    program = "import frtop_probe; frtop_probe.start(); print('trained')"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment(tmp_path / "unused", FRTOP_DIR=str(place), RANK="0"),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "trained\n")
    assert "open to other users; chmod 700" in done.stderr


NOBODY = 65534
AS_NOBODY = """
import os, sys
import frtop_probe
import frtop_probe.recorder.life  # from where nobody may read
if not os.getuid():
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
for _ in range(2):
    frtop_probe.start()
    frtop_probe.step()
print("trained")
"""


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that everybody may enter, unlike those of pytest."""
    with tempfile.TemporaryDirectory(prefix="frtop-test-", dir="/dev/shm") as name:
        place = Path(name)
        place.chmod(0o755)
        yield place
        for path in place.iterdir():
            if os.path.ismount(path):
                subprocess.run(["umount", "-l", str(path)], check=True)


def read_only(place: Path) -> None:
    place.mkdir()
    os.chown(place, *(NOBODY if not os.getuid() else os.getuid(),) * 2)
    place.chmod(0o500)


def mounted_read_only(place: Path) -> None:
    place.mkdir()
    options = f"ro,mode=700,uid={NOBODY}"
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)]
    if os.getuid() or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mounting a tmpfs is not possible here")


def somebody_elses(place: Path) -> None:
    if os.getuid():
        pytest.skip("only root can make another user's folder")
    place.mkdir(mode=0o700)


def link(place: Path) -> None:
    place.symlink_to("/tmp")


def file(place: Path) -> None:
    place.write_text("")


def closed_above(place: Path) -> None:
    if not os.getuid():
        place.parent.chmod(0o700)
    else:
        place.parent.chmod(0o500)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (read_only, "Permission denied; set FRTOP_DIR to another folder"),
        (mounted_read_only, "Read-only file system; set FRTOP_DIR to another folder"),
        (somebody_elses, "belongs to user 0; set FRTOP_DIR to a folder of your own"),
        (link, "is a link; remove it, or set FRTOP_DIR"),
        (file, "is no folder; remove it, or set FRTOP_DIR"),
        (closed_above, "(Permission denied); set FRTOP_DIR to a folder of your own"),
    ],
)
def test_an_unfit_folder_gets_its_sentence_once_and_the_program_runs(
    public: Path, make: Callable[[Path], None], says: str
) -> None:
    place = public / "named"
    make(place)
    done = subprocess.run(
        [sys.executable, "-c", AS_NOBODY],
        env=environment(public, FRTOP_DIR=str(place), RANK="0"),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    public.chmod(0o755)
    assert (done.returncode, done.stdout) == (0, "trained\n")
    (line,) = done.stderr.splitlines()
    assert line.startswith("frtop: recorder off: ")
    assert line.endswith("Training goes on")
    assert says in line


@pytest.mark.parametrize("function", ["fcntl.lockf", "os.posix_fallocate", "mmap.mmap"])
def test_a_file_system_that_lacks_something_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    monkeypatch.setattr(function, refuse)
    with pytest.raises(NoRoom, match="not supported; set FRTOP_DIR to another folder"):
        create([tmp_path])
    assert not list(tmp_path.iterdir())


def test_a_ring_that_is_removed_is_missed_by_nobody(tmp_path: Path) -> None:
    program = """
        import os, pathlib, shutil, frtop_probe
        from frtop_probe.recorder.life import life
        folder = pathlib.Path(os.environ["FRTOP_DIR"])
        frtop_probe.start()
        shutil.rmtree(folder)
        for _ in range(2000):
            frtop_probe.step()
        before, until = life.recorder.writer.cells[2], __import__("time").monotonic() + 10
        while life.recorder.writer.cells[2] == before:
            assert __import__("time").monotonic() < until
        print("trained", life.recorder.running)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env=environment(tmp_path / "frtop", RANK="0"),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "trained True\n", "")

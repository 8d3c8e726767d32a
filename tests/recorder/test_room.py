"""A full shared memory makes the ring smaller, or moves it, or leaves the rank without."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
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

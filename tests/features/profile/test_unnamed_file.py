"""Files without a name, also on a file system that knows none (NFS, for instance)."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from frtop_tui.features.profile.unnamed_file import UnnamedFile


@pytest.fixture(params=[0, errno.EOPNOTSUPP, errno.EISDIR])
def refused(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """The error that `O_TMPFILE` gets, as of file systems and kernels without it; 0: none."""
    error: int = request.param
    really = os.open

    def refuses(path: Any, flags: int, *more: Any, **named: Any) -> int:
        if error and flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(error, os.strerror(error), str(path))
        return really(path, flags, *more, **named)

    monkeypatch.setattr(os, "open", refuses)
    return error


@pytest.mark.usefixtures("refused")
def test_it_has_no_name_until_it_is_published(tmp_path: Path) -> None:
    file, text = UnnamedFile(tmp_path), b"x" * 3_000_000
    file.write(text[:5])
    file.write(text[5:])
    assert list(tmp_path.iterdir()) == []
    taken, path = tmp_path / "taken", tmp_path / "out"
    taken.write_bytes(b"mine")
    with pytest.raises(FileExistsError):
        file.publish(taken)
    file.publish(path)
    file.close()
    assert (taken.read_bytes(), path.read_bytes()) == (b"mine", text)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.stat().st_nlink == 1
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.usefixtures("refused")
def test_closing_it_leaves_nothing(tmp_path: Path) -> None:
    file = UnnamedFile(tmp_path)
    file.write(b"x")
    file.close()
    assert list(tmp_path.iterdir()) == []


def test_any_other_error_is_said(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        UnnamedFile(tmp_path / "none")


@pytest.mark.parametrize("tmpfile", [os.O_TMPFILE, 0])
def test_a_killed_program_leaves_nothing(tmp_path: Path, tmpfile: int) -> None:
    """Also where `open` knows no file without a name."""
    program = """
import errno, os, sys, time
from pathlib import Path
really = os.open
def opens(path, flags, *more, **named):
    if flags & os.O_TMPFILE == os.O_TMPFILE != int(sys.argv[2]):
        raise OSError(errno.EOPNOTSUPP, "not supported", str(path))
    return really(path, flags, *more, **named)
os.open = opens
from frtop_tui.features.profile.unnamed_file import UnnamedFile
file = UnnamedFile(Path(sys.argv[1]))
file.write(bytes(1 << 20))
print("has some", flush=True)
time.sleep(60)
"""
    command = [sys.executable, "-c", program, str(tmp_path), str(tmpfile)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as one:
        assert one.stdout is not None
        assert one.stdout.readline() == b"has some\n"
        one.send_signal(signal.SIGKILL)
    assert list(tmp_path.iterdir()) == []

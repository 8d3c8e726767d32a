"""What `frtop diagnose` and `frtop export` show on a terminal while they read files."""

from __future__ import annotations

import os
import pickle  # noqa: TID251 - as slow to check as a pickle can be
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from files.flightrecorder.writer import make_recorders, one_missing, write_dumps

ERASES = b"\r\x1b[K"


@pytest.fixture
def dumps(tmp_path: Path) -> Path:
    return write_dumps(tmp_path, one_missing())


def frtop(*words: object) -> list[str]:
    return [sys.executable, "-m", "frtop_tui", *map(str, words)]


def on_terminal(command: list[str]) -> tuple[subprocess.Popen[bytes], Iterator[bytes]]:
    """The process, and what its stderr writes to a terminal, as it comes."""
    ours, theirs = os.openpty()
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=theirs, env={**os.environ, "TERM": "xterm"}
    )
    os.close(theirs)

    def written() -> Iterator[bytes]:
        with suppress(OSError):  # Linux says EIO at the end
            while piece := os.read(ours, 4096):
                yield piece
        os.close(ours)

    return process, written()


def test_a_terminal_shows_how_far_the_reading_is_and_keeps_nothing_of_it(
    dumps: Path, tmp_path: Path
) -> None:
    trace = tmp_path / "job.trace.json"
    for words, more in (
        (["diagnose", dumps], []),
        (["export", dumps, "--format", "chrome", "-o", trace], [b"exporting 4 ranks as chrome"]),
    ):
        process, written = on_terminal(frtop(*words))
        before, *lines, rest = b"".join(written).split(ERASES)
        process.wait(60)
        assert before == rest == b""
        of_dumps = [line for line in lines if line.startswith(b"reading dumps: ")]
        assert of_dumps[-1].startswith(b"reading dumps: 4 of 4, ")
        assert len(of_dumps) == 4
        assert set(more) <= set(lines)


def test_a_pipe_gets_no_progress(dumps: Path) -> None:
    done = subprocess.run(frtop("diagnose", dumps), capture_output=True, check=False, timeout=60)
    assert b"rank 2 has not entered" in done.stdout
    assert done.stderr == b""


def test_an_error_replaces_the_line_of_progress(tmp_path: Path) -> None:
    (tmp_path / "nccl_trace_rank_0").write_bytes(b"\x80\x02}")
    process, written = on_terminal(frtop("diagnose", tmp_path))
    said = b"".join(written).rpartition(ERASES)[2]
    assert process.wait(60) == 1
    assert said.startswith(b"frtop: ")


def test_an_interrupted_reading_ends_with_130_and_says_nothing(tmp_path: Path) -> None:
    (one,) = make_recorders(1)
    one.ran("0", count=20_000)
    (tmp_path / "nccl_trace_rank_0").write_bytes(b"\x80\x02" + pickle.dumps(one.values(), 0))
    process, written = on_terminal(frtop("diagnose", tmp_path))
    said = b""
    for piece in written:
        said += piece
        if b"reading dumps" in said:
            process.send_signal(signal.SIGINT)
            break
    rest = b"".join(written)
    assert process.wait(60) == 130
    assert b"Traceback" not in rest
    assert rest.endswith(ERASES)

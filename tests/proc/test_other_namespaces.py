"""A process in a container, seen from its host: its threads and its files are its own ones."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from frtop_probe.proc import processes
from frtop_probe.proc.process_root import ProcessRoot, open_below
from frtop_probe.stacks import native_stacks, stacks
from frtop_probe.stacks.source_lines import SourceLines
from waiting import wait_for

PROGRAM = """
import threading, time

def runs():
    while True:
        pass

threading.Thread(target=runs, name="runs").start()
print(flush=True)
time.sleep(600)  # INSIDE
"""
needs_root = pytest.mark.skipif(
    os.getuid() != 0 or shutil.which("unshare") is None,
    reason="needs root and unshare to make namespaces",
)


@pytest.fixture
def contained(tmp_path: Path) -> Iterator[tuple[int, Path]]:
    """Its pid here, and its file, which has another text here than in its mount namespace."""
    file = tmp_path / "train.py"
    inside = tmp_path / "inside.py"
    inside.write_text(PROGRAM)
    file.write_text(PROGRAM.replace("INSIDE", "OUTSIDE"))
    script = 'mount --bind "$1" "$2" && exec "$3" "$2"'
    process = subprocess.Popen(
        ["unshare", "--pid", "--mount", "--propagation", "private", "--fork", "--kill-child",
         "sh", "-c", script, "sh", str(inside), str(file), sys.executable],
        stdout=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        assert process.stdout.readline()
        wait_for(lambda: len(processes.descendants(process.pid)) == 1, "it runs")
        yield processes.descendants(process.pid)[0], file
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def wait_channel(pid: int) -> str:
    return Path(f"/proc/{pid}/wchan").read_text()


@needs_root
async def test_threads_of_another_pid_namespace_are_the_kernels_here(
    contained: tuple[int, Path],
) -> None:
    pid, _ = contained
    wait_for(lambda: "nanosleep" in wait_channel(pid), "it sleeps")
    dump = await stacks.dump(pid, 10)
    found = {thread.name: thread for thread in dump.threads}
    assert sorted(thread.tid for thread in dump.threads) == processes.thread_ids(pid)
    assert found["MainThread"].tid == pid
    assert not found["MainThread"].active, "it sleeps"


@needs_root
async def test_native_stacks_stop_nothing_where_they_cannot_be_had(
    contained: tuple[int, Path],
) -> None:
    pid, _ = contained
    taken = await native_stacks.take(pid)
    assert (taken.dump.threads, taken.tool, taken.stopped_ns) == ((), "", 0)
    assert "docker exec" in taken.dump.help


@needs_root
async def test_a_line_is_read_from_the_file_that_the_process_sees(
    contained: tuple[int, Path],
) -> None:
    pid, _ = contained
    wait_for(lambda: "nanosleep" in wait_channel(pid), "it sleeps")
    dump = await stacks.dump(pid, 10, SourceLines())
    main = next(thread for thread in dump.threads if thread.name == "MainThread")
    assert main.frames[0].source == "time.sleep(600)  # INSIDE"


def test_our_own_root_is_no_other() -> None:
    assert ProcessRoot.of(os.getpid()) == ProcessRoot()


@pytest.mark.parametrize(("path", "text"), [
    ("/srv/job/train.py", "inside"),
    ("/absolute", "inside"),
    ("/srv/job/../../../srv/job/./train.py", "inside"),
    ("/srv/job/up", "inside"),
    ("/folder/train.py", "inside"),
    ("/out", None),
    ("/loop", None),
    ("/none", None),
    ("/srv/job/train.py/more", None),
])  # fmt: skip
def test_links_are_followed_within_the_root_of_the_process(
    tmp_path: Path, path: str, text: str | None
) -> None:
    (tmp_path / "secret").write_text("outside")
    root = tmp_path / "root"
    (root / "srv/job").mkdir(parents=True)
    (root / "srv/job/train.py").write_text("inside")
    (root / "absolute").symlink_to("/srv/job/train.py")
    (root / "srv/job/up").symlink_to("../../../absolute")
    (root / "folder").symlink_to("srv/job")
    (root / "out").symlink_to(tmp_path / "secret")
    (root / "loop").symlink_to("loop")
    before = len(list(Path("/proc/self/fd").iterdir()))
    descriptor = -1
    with suppress(OSError):
        descriptor = open_below(str(root), path)
    if descriptor < 0:
        assert text is None
    else:
        assert Path(f"/proc/self/fd/{descriptor}").read_text() == text
        os.close(descriptor)
    assert len(list(Path("/proc/self/fd").iterdir())) == before

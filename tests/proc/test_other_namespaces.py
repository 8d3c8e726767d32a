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
def contained(tmp_path: Path) -> Iterator[int]:
    """Its pid here; its file has another text here than in its mount namespace."""
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
        yield processes.descendants(process.pid)[0]
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@needs_root
async def test_threads_and_lines_of_a_process_in_other_namespaces(contained: int) -> None:
    """Threads have the kernel's numbers here, lines are of the file that the process sees."""
    wait_for(lambda: "nanosleep" in Path(f"/proc/{contained}/wchan").read_text(), "it sleeps")
    dump = await stacks.dump(contained, 10, SourceLines())
    found = {thread.name: thread for thread in dump.threads}
    assert sorted(thread.tid for thread in dump.threads) == processes.thread_ids(contained)
    main = found["MainThread"]
    assert (main.tid, main.active) == (contained, False)
    assert main.frames[0].source == "time.sleep(600)  # INSIDE"
    taken = await native_stacks.take(contained)
    assert (taken.dump.threads, taken.tool, taken.stopped_ns) == ((), "", 0)
    assert "docker exec" in taken.dump.help


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

"""A process of ann's that root looks at, made to harm what looks: names, source files, links."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from pathlib import Path

import pytest

from agent.ring_builder import RingBuilder
from as_user.conftest import PATH, PATIENCE_S, TESTS, UsersHost
from frtop_probe import wire
from frtop_probe.proc.process_root import ProcessRoot, read_source
from frtop_tui.connect.pipes.payload import tool_lines
from waiting import wait_for

HOSTILE = """
import ctypes, os, sys, threading, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from agent.ring_builder import RingBuilder
EVIL = "\\x1b]0;owned\\x07\\x1b[2J\\x9b31m\\r\\n" + "x" * 1000
ctypes.CDLL(None).prctl(15, b"\\x1b[2J\\r\\n")
builder = RingBuilder(Path(os.environ["FRTOP_DIR"]))
builder.standard_tables()
home = Path(sys.argv[2])
os.mkfifo(home / "pipe.py")
with open(home / "huge.py", "wb") as file:
    file.truncate(1 << 42)
(home / "good.py").write_text("# the first line\\n" * 4)
LINKS = {"zero": "/dev/zero", "shadow": "/etc/shadow", "kmsg": "/proc/kmsg", "self": "self.py",
         "environ": "/proc/self/environ", "memory": "/proc/self/mem", "terminal": "/dev/tty"}
for name, target in LINKS.items():
    os.symlink(target, home / (name + ".py"))
def start(path):
    space = {}
    exec(compile("import time\\ndef f():\\n    while True: time.sleep(1)\\n", path, "exec"), space)
    names = [name for name in ("co_name", "co_qualname") if hasattr(space["f"].__code__, name)]
    space["f"].__code__ = space["f"].__code__.replace(**dict.fromkeys(names, EVIL))
    threading.Thread(target=space["f"], name=EVIL, daemon=True).start()
for name in ("good", "pipe", "huge", *LINKS):
    start(str(home / (name + ".py")))
start(str(home / ("d/" * 3000 + "deep.py")))
print("ready", flush=True)
while True:
    time.sleep(0.05)
    builder.heartbeat()
"""


def test_names_and_source_files_made_to_harm_do_none(host: UsersHost) -> None:
    home = Path(f"~{host.ann}").expanduser() / "hostile"
    home.mkdir()
    os.chown(home, host.uid, host.uid)
    process = subprocess.Popen(
        [host.python, "-c", HOSTILE, str(TESTS), str(home)], user=host.uid, group=host.uid,
        extra_groups=[], env={"FRTOP_DIR": str(host.rings(host.uid)), "PYTHONPATH": PATH},
        stdout=subprocess.PIPE, text=True, cwd="/",
    )  # fmt: skip
    assert process.stdout is not None
    for undo in (process.stdout.close, process.wait, process.kill):
        host.stack.callback(undo)
    assert process.stdout.readline() == "ready\n"
    far = host.shell(host.ann)
    far.start()
    far.send(b"".join(tool_lines(platform.machine())))
    (rank,) = host.state_with(far, 1).ranks
    sources: dict[str, str] = {}
    end = time.monotonic() + PATIENCE_S
    while (
        not sources.get("good.py") and time.monotonic() < end
    ):  # late lines go into the next answer
        (snapshot,) = far.request(wire.SnapshotRequest, (rank.key,)).snapshots
        (dump,) = snapshot.dumps
        assert dump.error == "", dump.help
        frames = [frame for thread in dump.threads for frame in thread.frames]
        named = {Path(one.file).name: one for one in frames if str(home) in one.file}
        sources = {name: frame.source for name, frame in named.items()}
    assert len(named) >= 10  # py-spy may leave out a path of 6,000 characters
    assert {name for name, source in sources.items() if source} == {"good.py"}
    assert any("[2J" in frame.function for frame in frames)
    assert far.request(wire.TimeRequest).wall_ns


def test_rings_that_name_processes_of_others_are_ignored(host: UsersHost) -> None:
    mine, theirs = (host.start_rank(user) for user in host.users)
    rings = host.rings(host.uid)
    for pid in (1, theirs):
        ring = RingBuilder(rings, pid=pid)
        ring.standard_tables()
        os.chown(ring.path, host.uid, host.uid)
    far = host.shell(host.ann)
    far.start()
    state = host.state_with(far, 1)

    def both_are_said() -> bool:
        notes = far.request(wire.StateRequest).update.notes
        return sum("belongs to another user: ignored" in note for note in notes) == 2

    wait_for(both_are_said, "notes")
    assert [rank.identity.pid for rank in state.ranks if rank.identity] == [mine]


@pytest.mark.parametrize("path", ["/proc/kmsg", "/proc/self/environ"])
def test_files_of_the_kernel_are_no_source(path: str) -> None:
    assert read_source(ProcessRoot(), path).lines == ()

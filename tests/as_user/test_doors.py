"""Another user of the host at the doors of ann's jobs: folder, sockets, port, pipe, archive."""

from __future__ import annotations

import json
import os
import pwd
import signal
import stat
import subprocess
from pathlib import Path

import pytest
import zmq

from agent.agent_host import DEADLINE, handshake
from as_user.conftest import PATH, PATIENCE_S, UsersHost
from frtop_probe import wire
from frtop_probe.agent import announcement
from frtop_probe.agent.announcement import Announcement
from frtop_probe.ring.folder import AgentFiles
from frtop_probe.ring.layout import SUFFIX
from pipe.far_agent import SHELL, FarAgent
from waiting import wait_for

TRIES = """
import ctypes, json, os, socket, sys
folder, pids, files = json.load(sys.stdin)
done = []
def attempt(name, act):
    try:
        act()
    except OSError as error:
        if error.errno not in (1, 13):  # EPERM, EACCES
            done.append(f"{name}: {error}")
    else:
        done.append(name)
def unix(path):
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(path)
def trace(pid):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.ptrace(16, pid, None, None) < 0:
        raise OSError(ctypes.get_errno(), "ptrace")
attempt("list", lambda: os.listdir(folder))
attempt("create", lambda: open(folder + "/9-9.ring", "w"))
attempt("chmod", lambda: os.chmod(folder, 0o777))
attempt("rename", lambda: (os.rename(folder, folder + "x"), os.rename(folder + "x", folder)))
for path in files:
    attempt("read " + path, lambda: open(path, "rb"))
    attempt("write " + path, lambda: open(path, "r+b"))
    attempt("connect " + path, lambda: unix(path))
    attempt("remove " + path, lambda: os.unlink(path))
for pid in pids:
    attempt(f"trace {pid}", lambda: trace(pid))
    attempt(f"signal {pid}", lambda: os.kill(pid, 0))
    attempt(f"fds {pid}", lambda: os.listdir(f"/proc/{pid}/fd"))
    for name in ("mem", "environ", "maps", "root/etc/passwd", *(f"fd/{n}" for n in range(12))):
        attempt(f"read {pid} {name}", lambda: open(f"/proc/{pid}/{name}", "rb"))
        attempt(f"write {pid} {name}", lambda: open(f"/proc/{pid}/{name}", "wb"))
json.dump(done, sys.stdout)
"""


def done_by(host: UsersHost, user: str, folder: Path, pids: list[int]) -> list[str]:
    """What this user could do with all that is in the folder and with these processes."""
    uid = pwd.getpwnam(user).pw_uid
    files = [str(path) for path in sorted(folder.rglob("*"))]
    tried = subprocess.run(
        [host.python, "-I", "-S", "-c", TRIES], user=uid, group=uid, extra_groups=[], cwd="/",
        input=json.dumps([str(folder), pids, files]), capture_output=True, text=True, check=True,
    )  # fmt: skip
    found: list[str] = json.loads(tried.stdout)
    return found


@pytest.fixture
def listening(host: UsersHost) -> Announcement:
    """An agent of ann's, with her key, beside a rank that answers requests."""
    host.start_rank(host.ann)
    home = Path(f"~{host.ann}").expanduser()
    subprocess.run(["chmod", "755", str(home)], check=True)
    environment = {
        "FRTOP_DIR": str(host.rings(host.uid)), "HOME": str(home), "FRTOP_BIND": "127.0.0.1",
        "FRTOP_UNPREPARED": "0", "PYTHONPATH": PATH, "FRTOP_PORT": str(30000 + os.getpid() % 9000),
    }  # fmt: skip
    agent = subprocess.Popen(
        [host.python, "-m", "frtop_probe.agent"], user=host.uid, group=host.uid, extra_groups=[],
        env=environment, cwd="/", stderr=subprocess.DEVNULL,
    )  # fmt: skip
    for undo in (agent.wait, agent.terminate):  # the last one first
        host.stack.callback(undo)
    files = AgentFiles.here(host.rings(host.uid))
    return wait_for(lambda: announcement.read_card(files), "its card", seconds=PATIENCE_S)


def test_another_user_gets_through_no_door_of_an_agent(
    host: UsersHost, listening: Announcement
) -> None:
    ann, ben = host.users
    rings = host.rings(host.uid)
    key = Path(f"~{ann}").expanduser() / ".config/frtop"
    log = rings / f"{AgentFiles.here(rings).log.name}"
    log.touch()
    assert any(path.suffix == SUFFIX for path in rings.iterdir())
    assert stat.S_IMODE(rings.stat().st_mode) == stat.S_IMODE(key.stat().st_mode) == 0o700
    (mine,) = (int(path.name.partition("-")[0]) for path in rings.glob(f"*{SUFFIX}"))
    for folder in (rings, key):
        assert done_by(host, ben, folder, [listening.pid, mine]) == []
    # The doors open for their owner, so the program above does try.
    own = done_by(host, ann, rings, [mine])
    assert {"list", "create", f"read {mine} mem"} <= set(own)
    # At the port he is anybody on the network.
    pair = zmq.curve_keypair()
    for port in (listening.ask, listening.pub):
        assert handshake(listening, pair, port) == zmq.Event.HANDSHAKE_FAILED_AUTH


def test_another_user_gets_through_no_door_of_a_pipe(host: UsersHost) -> None:
    """The shell's input and output, and the archive, which is a file without a name."""
    ben = host.users[1]
    rank = host.start_rank(host.ann)
    uid = str(host.uid)
    shell = ("setpriv", "--reuid", uid, "--regid", uid, "--clear-groups", *SHELL)
    far = FarAgent(
        shell, python=host.python, FRTOP_UNPREPARED="0", FRTOP_DIR=str(host.rings(host.uid))
    )
    host.stack.callback(far.close)
    far.start()
    assert len(host.state_with(far, 1).ranks) == 1
    opened = Path(f"/proc/{far.pid}/fd").iterdir()
    (archive,) = (path for path in opened if str(path.readlink()).startswith("/memfd:frtop"))
    assert done_by(host, ben, host.rings(host.uid), [far.pid, rank]) == []
    # Sealed: not even its user changes what is imported from it.
    with pytest.raises(PermissionError), archive.open("r+b") as file:
        file.write(b"PK")
    assert far.request(wire.TimeRequest).wall_ns


def test_a_folder_that_another_user_made_first_is_not_used(host: UsersHost) -> None:
    ann, ben = host.users
    theirs = pwd.getpwnam(ben).pw_uid
    folder = host.rings(host.uid)
    os.chown(folder, theirs, theirs)
    folder.chmod(0o777)
    program = "from frtop_probe.ring.folder import folder; print(folder())"
    found = subprocess.run(
        [host.python, "-c", program], user=host.uid, group=host.uid, extra_groups=[], cwd="/",
        env={"PYTHONPATH": PATH}, capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    assert Path(found) != folder
    far = host.shell(ann)
    far.start()
    assert far.request(wire.StateRequest).update.ranks == ()
    os.kill(far.pid, signal.SIGTERM)
    far.await_end(DEADLINE)

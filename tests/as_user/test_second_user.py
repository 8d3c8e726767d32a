"""Root looks at the jobs of one of two real users: what is seen, what runs, what stays."""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from agent.ring_builder import RingBuilder
from as_user.conftest import PATIENCE_S, UsersHost, capabilities, run_as, status_of
from frtop_probe import wire
from frtop_probe.agent.snapshots import SnapshotTaker
from frtop_probe.pipe import become_user
from frtop_probe.pipe.lines import encoded, tool_block
from frtop_probe.pipe.start_script import start_script
from frtop_probe.proc import processes
from frtop_probe.ring.layout import SUFFIX
from frtop_tui.cli.live import require_own
from frtop_tui.connect.pipes.payload import tool_lines
from frtop_tui.errors import NotOurs
from pipe.far_agent import FarAgent
from waiting import wait_for


def children_of(pid: int) -> list[int]:
    with suppress(FileNotFoundError):
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def test_what_reads_is_that_user_and_sees_nobody_else(host: UsersHost) -> None:
    mine, theirs = (host.start_rank(user) for user in host.users)
    far = host.shell(host.ann, outside=True, SECRET="of root")
    hello = far.start()
    assert (hello["user"], hello["uid"]) == (host.ann, host.uid)
    state = host.state_with(far, 1)
    identities = [rank.identity for rank in state.ranks]
    assert [one.pid for one in identities if one is not None] == [mine]
    far.send(b"".join(tool_lines(platform.machine())))
    look = far.request(wire.SnapshotRequest, tuple(rank.key for rank in state.ranks))
    assert [dump.error for snapshot in look.snapshots for dump in snapshot.dumps] == [""]

    stays = 1 << become_user.SETPCAP
    stays |= 1 << become_user.SYS_PTRACE if become_user.wants_ptrace() else 0
    children = wait_for(lambda: children_of(far.pid), "a child that reads")
    for pid in (far.pid, *children):
        status = status_of(pid)
        assert status["Uid"] == status["Gid"] == [str(host.uid)] * 4
        assert status["Groups"] == []
        assert capabilities(status) == {stays}
        assert status["NoNewPrivs"] == ["1"]
        assert b"SECRET" not in Path(f"/proc/{pid}/environ").read_bytes()
        assert run_as(host.uid, "/bin/sh", "-c", f"exec 3< /proc/{pid}/mem") != 0
    del theirs


def test_nothing_that_the_user_can_change_is_run(host: UsersHost) -> None:
    host.start_rank(host.ann)  # before: it runs what its user has
    home = Path(f"~{host.ann}").expanduser()
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    site = home / ".local/lib" / version / "site-packages"
    site.mkdir(parents=True)
    marker = home / "ran"
    for name in ("usercustomize", "sitecustomize", "msgspec", "json"):
        (site / f"{name}.py").write_text(f"open({str(marker)!r}, 'a').write('{name} ')\n")
        shutil.copy(site / f"{name}.py", home)  # the folder in which root happens to be
    tools = home / "bin"
    tools.mkdir()
    for name in ("python3", "python3.12", "py-spy", "ls", "timeout", "env", "readlink", "true"):
        (tools / name).write_text(f"#!/bin/sh\necho {name} >> {marker}\necho frtop-ok\n")
        (tools / name).chmod(0o755)
    # A Python of root's whose folder others can write.
    loose = home / "loose"
    loose.mkdir()
    shutil.copy(host.python, loose / "python3.13")
    subprocess.run(["chown", "-R", f"{host.uid}:{host.uid}", str(home)], check=True)
    os.chown(loose / "python3.13", 0, 0)
    far = host.shell(
        host.ann, outside=True, PATH=f"{tools}:{loose}:{os.environ['PATH']}", HOME=str(home),
        PYTHONPATH=str(site), PYTHONSTARTUP=str(site / "usercustomize.py"),
    )  # fmt: skip
    far.start()
    state = host.state_with(far, 1)
    far.request(wire.SnapshotRequest, tuple(rank.key for rank in state.ranks))
    wait_for(lambda: children_of(far.pid), "children")
    assert not marker.exists(), marker.read_text()
    assert not str(Path(f"/proc/{far.pid}/exe").readlink()).startswith(str(home))


def test_a_python_that_others_can_change_is_not_run(host: UsersHost) -> None:
    ann, ben = host.users
    home = Path(f"~{ben}").expanduser()
    changed = home / "python3.11"
    changed.write_text("#!/bin/sh\necho frtop-ok\n")
    changed.chmod(0o755)
    for python, says in (
        (changed, f"users other than root can change {changed}"),
        (Path("/no/such/python"), "no program /no/such/python"),
    ):
        far = host.shell(ann, named=str(python))
        said = far.await_word("error")
        assert says in said["text"]
        assert "--python PATH" in said["next"]


def test_a_python_with_a_library_that_others_can_change_is_not_run(
    host: UsersHost,
) -> None:
    """Root runs it before it becomes the user: with modules of its library."""
    prefix = Path(f"/opt/{host.ann}")  # others can write /tmp
    host.stack.callback(shutil.rmtree, prefix)
    (prefix / "bin").mkdir(parents=True)
    library = prefix / "lib" / "python3.12"
    library.mkdir(parents=True)
    os.chown(library, host.uid, host.uid)
    marker = prefix / "ran"
    python = prefix / "bin" / "python3.12"
    python.write_text(f"#!/bin/sh\ntouch {marker}\n")
    python.chmod(0o755)
    said = host.shell(host.ann, named=str(python)).await_word("error")
    assert f"users other than root can change {python}" in said["text"]
    assert not marker.exists()


def test_root_runs_no_python_of_a_process_of_its_own_that_others_can_change(
    host: UsersHost, tmp_path: Path
) -> None:
    """Without --user, too: somebody may have put another file there since that process began."""
    program = Path(f"~{host.ann}").expanduser() / "python3.99"
    shutil.copy(shutil.which("sleep") or "", program)
    job = subprocess.Popen([program, "60"], cwd="/")
    for undo in (job.wait, job.kill):
        host.stack.callback(undo)
    for name in ("ls", "readlink"):
        (tmp_path / name).symlink_to(shutil.which(name) or "")
    script = start_script().replace(b"/proc/[0-9]*/exe", f"/proc/{job.pid}/exe".encode())
    far = FarAgent(("/bin/sh",), script=script, PATH=str(tmp_path))
    host.stack.callback(far.close)
    assert f"users other than root can change {program}" in far.await_word("error")["text"]


def test_a_hostile_folder_costs_its_user_at_most(host: UsersHost) -> None:
    rings = host.rings(host.uid)
    (rings / f"1-1{SUFFIX}").symlink_to("/etc/shadow")
    os.mkfifo(rings / f"2-2{SUFFIX}")
    (rings / f"3-3{SUFFIX}").mkdir()
    with (rings / f"4-4{SUFFIX}").open("wb") as huge:
        huge.truncate(1 << 40)
    (rings / f"5-5{SUFFIX}").write_bytes(b"\xff" * (1 << 20))
    RingBuilder(rings, pid=os.getpid()).standard_tables()  # it names a process of root's
    for path in rings.iterdir():
        os.lchown(path, host.uid, host.uid)
    (rings / "shadow").symlink_to("/etc/shadow")
    mine = host.start_rank(host.ann)
    far = host.shell(host.ann)
    far.start()
    state = host.state_with(far, 1)
    assert [rank.identity.pid for rank in state.ranks if rank.identity] == [mine]
    own = f"names process {os.getpid()}, which belongs to another user: ignored"
    wait_for(
        lambda: any(own in note for note in far.request(wire.StateRequest).update.notes), "a note"
    )
    assert len(host.state_with(far, 1).ranks) == 1


def test_what_reads_ends_with_frtop_even_where_its_user_stops_it(host: UsersHost) -> None:
    frtop = subprocess.Popen(
        [sys.executable, "-m", "frtop_tui", "diagnose", "--user", host.ann, "--wait", "100"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env={**os.environ, "FRTOP_UNPREPARED": "0"},
    )  # fmt: skip
    try:

        def reader() -> int | None:
            for task in Path(f"/proc/{frtop.pid}/task").iterdir():
                with suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
                    for one in (task / "children").read_text().split():
                        if status_of(int(one))["Uid"] == [str(host.uid)] * 4:
                            return int(one)
            return None

        pid = wait_for(reader, "what reads", seconds=PATIENCE_S)
        assert run_as(host.uid, "/bin/sh", "-c", f"kill -STOP {pid}") == 0
    finally:
        frtop.send_signal(signal.SIGKILL)
        frtop.wait()
    wait_for(lambda: not processes.is_own(pid) and processes.read_stat(pid) is None, "it has ended")


def test_a_tool_that_its_user_stops_ends_with_what_reads(host: UsersHost) -> None:
    host.start_rank(host.ann)
    far = host.shell(host.ann)
    far.start()
    state = host.state_with(far, 1)
    far.send(b"".join(tool_block("py-spy", b"#!/bin/sh\nexec sleep 77\n")))
    look = wire.SnapshotRequest(99, tuple(rank.key for rank in state.ranks))
    far.send(encoded(b"req", wire.to_frame(look)))

    def tool() -> int | None:
        for pid in children_of(far.pid):
            with suppress(OSError):  # it ended since it was listed
                if Path(f"/proc/{pid}/cmdline").read_bytes() == b"sleep\x0077\0":
                    return pid
        return None

    pid = wait_for(tool, "the tool")
    for name in ("mem", "environ", "fd/1"):
        assert run_as(host.uid, "/bin/sh", "-c", f"exec 3< /proc/{pid}/{name}") != 0, name
    assert run_as(host.uid, "/bin/sh", "-c", f"kill -STOP {pid}; kill -KILL {far.pid}") == 0
    far.process.wait()
    wait_for(lambda: processes.read_stat(pid) is None, "it has ended")


def test_children_that_have_become_another_user_are_left_alone(host: UsersHost) -> None:
    program = (
        "import subprocess, sys, time\n"
        "own = subprocess.Popen(['sleep', '60'])\n"
        'inner = \'import subprocess; subprocess.run(["sleep", "60"])\'\n'
        "command = [sys.executable, '-c', inner]\n"
        f"other = subprocess.Popen(command, user={host.uid}, extra_groups=[])\n"
        "print(own.pid, other.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    parent = subprocess.Popen(
        [host.python, "-c", program], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        assert parent.stdout is not None
        own, other = map(int, parent.stdout.readline().split())
        wait_for(lambda: children_of(other), "the other user's child")
        assert processes.descendants(parent.pid) == (own,)
        assert processes.is_own(own)
        assert not processes.is_own(other)
        dump = asyncio.run(SnapshotTaker()._dump(other, time.monotonic() + 5.0, None))
        assert (dump.error, dump.threads) == ("refused", ())
    finally:
        os.killpg(parent.pid, signal.SIGKILL)
        parent.communicate()


def test_a_process_of_another_user_is_not_looked_at_and_the_error_says_how(
    host: UsersHost,
) -> None:
    ann, ben = host.users
    pid = host.start_rank(ann)
    with pytest.raises(NotOurs) as caught:
        require_own(pid)
    said = f"process {pid} belongs to user {ann}: frtop does not look at it"
    assert caught.value.text == said
    assert caught.value.next_step == f"frtop --user {ann}"
    with pytest.raises(NotOurs):
        require_own(pid, ben)
    require_own(pid, ann)
    require_own(os.getpid())
    require_own(2**22)  # nobody's

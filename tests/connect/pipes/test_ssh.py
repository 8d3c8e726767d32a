"""ssh to a real sshd of this user, on a port of its own, with nobody else's settings or keys."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from connect.pipes.operator_pipes import OperatorPipes
from frtop_probe import wire
from frtop_tui.connect.connection_events import Connected
from frtop_tui.connect.pipes.places import places
from waiting import wait_for

SSHD = shutil.which("sshd") or "/usr/sbin/sshd"


def public(file: Path) -> str:
    return " ".join(file.with_suffix(".pub").read_text().split()[:2])


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Settings for `ssh -F`, with a host for each way in which a log-in ends."""
    if not Path(SSHD).exists() or shutil.which("ssh") is None:
        pytest.skip("not installed: openssh-server, openssh-client")
    folder = tmp_path_factory.mktemp("ssh")
    for name in ("host", "id", "other"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True
        )
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
    (folder / "sshd").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\nPidFile none\n"
        "SetEnv FRTOP_UNPREPARED=0\n"
        "UsePAM no\nStrictModes no\nPermitRootLogin yes\nPasswordAuthentication no\n"
        f"KbdInteractiveAuthentication no\nAuthorizedKeysFile {folder}/id.pub\n"
    )
    (folder / "known").write_text(f"[127.0.0.1]:{port} {public(folder / 'host')}\n")
    (folder / "wrong").write_text(f"[127.0.0.1]:{port} {public(folder / 'other')}\n")
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        closed = one.getsockname()[1]
    (folder / "config").write_text(
        f"Host closed\n  Port {closed}\n"
        f"Host changed\n  UserKnownHostsFile {folder}/wrong\n"
        "Host unknown\n  UserKnownHostsFile /dev/null\n"
        f"Host stranger\n  IdentityFile {folder}/other\n"
        "Host behind\n  ProxyJump bastion\n"
        "Host barred\n  ProxyJump stranger\n"
        f"Host *\n  HostName 127.0.0.1\n  Port {port}\n  User {getpass.getuser()}\n"
        "  IdentitiesOnly yes\n  GlobalKnownHostsFile /dev/null\n"
        f"  UserKnownHostsFile {folder}/known\n"
        f"Host node0 behind stranger\n  ControlPath {folder}/shared\n"
        "  ControlMaster auto\n  ControlPersist 60\n"
        f"Host * !stranger\n  IdentityFile {folder}/id\n"
    )
    server = subprocess.Popen([SSHD, "-D", "-f", str(folder / "sshd"), "-E", str(folder / "log")])

    def listens() -> bool:
        assert server.poll() is None, (folder / "log").read_text()
        with socket.socket() as one:
            return one.connect_ex(("127.0.0.1", port)) == 0

    wait_for(listens, "sshd")
    yield folder / "config"
    server.kill()
    server.wait()


@pytest.fixture
def operator(config: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OperatorPipes]:
    monkeypatch.setenv("FRTOP_SSH", f"ssh -F {config}")
    one = OperatorPipes()
    yield one
    one.connections.close()


def test_a_host_is_reached_and_no_shared_connection_is_left_behind(
    operator: OperatorPipes, config: Path
) -> None:
    operator.reach(*places(["behind"]))
    operator.await_event(Connected("behind"))
    assert isinstance(operator.ask("behind", 1), wire.StateResponse)
    assert not config.with_name("shared").exists()


def test_each_way_in_which_a_log_in_ends_has_its_words(operator: OperatorPipes) -> None:
    operator.reach(*places(["closed", "changed", "unknown", "stranger", "barred"]))
    said = {host: operator.await_failure(host) for host in operator.hosts}
    assert "closed accepts no ssh connections" in said["closed"]
    assert "changed has a different host key from the one that ssh knows" in said["changed"]
    assert "ssh does not know the host key of unknown" in said["unknown"]
    assert "stranger accepts none of the keys of this user (publickey)" in said["stranger"]
    assert said["barred"].startswith("on the way to barred: stranger accepts none of the keys")


def test_a_shared_connection_that_is_open_is_used(operator: OperatorPipes, config: Path) -> None:
    shared = config.with_name("shared")
    ssh = ("ssh", "-F", str(config))
    subprocess.run([*ssh, "-fN", "node0"], check=True, stderr=subprocess.DEVNULL)
    try:
        assert shared.exists()
        operator.reach(*places(["stranger"]))  # without a key of its own that is accepted
        operator.await_event(Connected("stranger"))
    finally:
        operator.connections.close()
        still = subprocess.run([*ssh, "-O", "check", "node0"], capture_output=True, check=False)
        subprocess.run([*ssh, "-O", "exit", "node0"], capture_output=True, check=False)
    assert still.returncode == 0

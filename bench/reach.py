"""Seconds to the first frame with all ranks, on hosts that are reached only by ssh.

All hosts are this machine, with a folder of rings each, and one sshd of this user. So all remote
Pythons share its cores; those of real hosts do not.
"""

from __future__ import annotations

import getpass
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from unittest import mock

from bench.hosts import Hosts
from frtop_tui.connect.endpoints import PipeEndpoint
from frtop_tui.connect.live import LiveSource
from frtop_tui.connect.pipes import connections
from frtop_tui.connect.pipes.ssh_command import onward_command, ssh_endpoint

COUNTS: Final = (1, 8, 64)
SSHD: Final = shutil.which("sshd") or "/usr/sbin/sshd"
LONGEST_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class _Host:
    """A host with its rings in a folder of its own."""

    name: str
    folder: Path

    @property
    def doing(self) -> str:
        return "asking ssh for its settings"

    @property
    def shell(self) -> str:
        return f"FRTOP_DIR={self.folder} FRTOP_UNPREPARED=0 exec sh"

    def find(self) -> list[PipeEndpoint]:
        *words, _ = ssh_endpoint(self.name).commands[0]
        return [PipeEndpoint(self.name, ((*words, self.shell),), f"ssh {self.name}")]


@dataclass(frozen=True, slots=True)
class _Through:
    """The same hosts, behind one hop."""

    hosts: tuple[_Host, ...]
    name: str = "way"
    doing: str = "asking ssh for its settings"

    def find(self) -> list[PipeEndpoint]:
        (command,) = ssh_endpoint(self.name).commands
        return [
            PipeEndpoint(
                host.name, (command, *host.find()[0].commands), "ssh", task=number,
                onward=(*onward_command(host.name)[:-1], host.shell),
            )
            for number, host in enumerate(self.hosts)
        ]  # fmt: skip


def main() -> None:
    if not Path(SSHD).exists():
        print("reach: not measured, sshd is not installed")
        return
    # To frtop they are one place, which it would show once.
    with _sshd(), mock.patch.object(connections, "_place", return_value=None):
        for count in COUNTS:
            direct, through = (_first_full_frame(count, through=one) for one in (False, True))
            print(
                f"{count} hosts over ssh, to the first frame with all ranks: {direct:.1f} s;"
                f" through one hop: {through:.1f} s"
            )


def _first_full_frame(count: int, *, through: bool) -> float:
    with Hosts(count, 1, 1.0, agents=False) as hosts:
        found = tuple(_Host(f"h{n}", folder) for n, folder in enumerate(hosts.folders))
        named = (_Through(found),) if through else found
        begin = time.monotonic()
        source = LiveSource([], places=named)
        try:
            while len(source.frame().ranks) < hosts.world:
                assert time.monotonic() - begin < LONGEST_S, source.frame().hosts
                time.sleep(0.02)
            return time.monotonic() - begin
        finally:
            source.close()


@contextmanager
def _sshd() -> Iterator[None]:
    """Runs an sshd of this user, with an `FRTOP_SSH` that reaches it by any name."""
    folder = Path(tempfile.mkdtemp(prefix="frtop-bench-"))
    for name in ("host", "id"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True
        )
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    (folder / "sshd").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\nPidFile none\nUsePAM no\n"
        f"StrictModes no\nPermitRootLogin yes\nAuthorizedKeysFile {folder}/id.pub\n"
        f'MaxStartups 100\nSetEnv FRTOP_SSH="ssh -F {folder}/config"\n'
    )
    (folder / "config").write_text(
        f"Host *\n  HostName 127.0.0.1\n  Port {port}\n  User {getpass.getuser()}\n"
        f"  IdentityFile {folder}/id\n  IdentitiesOnly yes\n  LogLevel ERROR\n"
        f"  UserKnownHostsFile {folder}/known\n  StrictHostKeyChecking no\n"
    )
    server = subprocess.Popen([SSHD, "-D", "-f", folder / "sshd", "-E", folder / "log"])
    try:
        with mock.patch.dict("os.environ", {"FRTOP_SSH": f"ssh -F {folder}/config"}):
            subprocess.run(  # sshd is there, and its host key known
                ["ssh", "-F", folder / "config", "-o", "ConnectionAttempts=20", "h0", "true"],
                check=True,
            )
            yield
    finally:
        server.kill()
        server.wait()
        shutil.rmtree(folder)

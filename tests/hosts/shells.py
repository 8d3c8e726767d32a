"""sshd on each host of a cluster, and the settings with which its operator's ssh reaches them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Final

from hosts.network import Host

SSHD: Final = shutil.which("sshd") or "/usr/sbin/sshd"
PASSWORD_PORT: Final = 2222
"""Where a host accepts passwords only."""


def obstacle() -> str:
    """Why there can be no sshd here, "" if there can."""
    if not Path(SSHD).exists() or shutil.which("ssh") is None:
        return "not installed: openssh-server, openssh-client"
    return ""


class Shells:
    """Keys and settings in a folder of their own. `config` is for `ssh -F`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.config = folder / "ssh_config"
        self._known: list[str] = []
        self._key("id")
        self._key("other")
        Path("/run/sshd").mkdir(exist_ok=True)

    def _key(self, name: str) -> str:
        """Makes a key pair; returns the public one."""
        file = self._folder / name
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(file)], check=True)
        return " ".join(file.with_suffix(".pub").read_text().split()[:2])

    def serve(self, host: Host) -> None:
        """Starts sshd on a host, for our key; and one that accepts passwords only."""
        public = self._key(f"host_{host.name}")
        self._known += [f"{host.name} {public}", f"[{host.name}]:{PASSWORD_PORT} {public}"]
        self._start(host, 22, "PasswordAuthentication no")
        self._start(host, PASSWORD_PORT, "PasswordAuthentication yes\nPubkeyAuthentication no")

    def _start(self, host: Host, port: int, rules: str) -> None:
        config = self._folder / f"sshd_{host.name}_{port}"
        config.write_text(
            f"Port {port}\nListenAddress {host.address}\nHostKey {self._folder}/host_{host.name}\n"
            f"PidFile {config}.pid\nUsePAM no\nStrictModes no\nPermitRootLogin yes\n"
            f'SetEnv FRTOP_SSH="ssh -F {self.config}"\n'
            f"KbdInteractiveAuthentication no\nAuthorizedKeysFile {self._folder}/id.pub\n{rules}\n"
        )
        host.run(SSHD, "-f", str(config), "-E", f"{config}.log")

    def write_config(self, node: str) -> None:
        """Writes the operator's settings. `imposter` is `node` with another key than is known."""
        other = " ".join((self._folder / "other.pub").read_text().split()[:2])
        known = self._folder / "known_hosts"
        known.write_text("\n".join([*self._known, f"imposter {other}"]) + "\n")
        self.config.write_text(
            f"Host imposter\n  HostName {node}\n  HostKeyAlias imposter\n"
            f"Host locked\n  HostName {node}\n  Port {PASSWORD_PORT}\n"
            f"  HostKeyAlias [{node}]:{PASSWORD_PORT}\n"
            f"Host *\n  User root\n  IdentityFile {self._folder}/id\n  IdentitiesOnly yes\n"
            f"  UserKnownHostsFile {known}\n  StrictHostKeyChecking yes\n"
        )

"""sshd on each host of a cluster, and the settings with which its operator's ssh reaches them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Final

from hosts.network import Host

SSHD: Final = shutil.which("sshd") or "/usr/sbin/sshd"


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
        Path("/run/sshd").mkdir(exist_ok=True)

    def _key(self, name: str) -> str:
        """Makes a key pair; returns the public one."""
        file = self._folder / name
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(file)], check=True)
        return " ".join(file.with_suffix(".pub").read_text().split()[:2])

    def serve(self, host: Host) -> None:
        """Starts sshd on a host, for our key."""
        public = self._key(f"host_{host.name}")
        self._known.append(f"{host.name} {public}")
        config = self._folder / f"sshd_{host.name}"
        config.write_text(
            f"Port 22\nListenAddress {host.address}\nHostKey {self._folder}/host_{host.name}\n"
            f"PidFile {config}.pid\nUsePAM no\nStrictModes no\nPermitRootLogin yes\n"
            f'SetEnv FRTOP_SSH="ssh -F {self.config}"\n'
            f"KbdInteractiveAuthentication no\nAuthorizedKeysFile {self._folder}/id.pub\n"
            "PasswordAuthentication no\n"
        )
        host.run(SSHD, "-f", str(config), "-E", f"{config}.log")

    def write_config(self) -> None:
        """Writes the operator's settings."""
        known = self._folder / "known_hosts"
        known.write_text("\n".join(self._known) + "\n")
        self.config.write_text(
            f"Host *\n  User root\n  IdentityFile {self._folder}/id\n  IdentitiesOnly yes\n"
            f"  UserKnownHostsFile {known}\n  StrictHostKeyChecking yes\n"
        )

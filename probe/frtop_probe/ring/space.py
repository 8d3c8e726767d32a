"""Which processes can see each other by pid: those of one boot, in one pid namespace.

Containers may share a folder and yet not see each other. Each such space has an agent of
its own, and an agent adopts the rings of its own space only.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from pathlib import Path

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_PIDS = Path("/proc/self/ns/pid")


@dataclass(frozen=True, slots=True)
class Space:
    """`boot` is 16 bytes, zero where the kernel does not tell; the namespace is its inode."""

    boot: bytes
    pid_namespace: int

    @classmethod
    def here(cls) -> Space:
        """That of this very process.

        Raises:
            OSError: there is no /proc.
        """
        try:
            boot = uuid.UUID(_BOOT.read_text().strip()).bytes
        except (OSError, ValueError):
            boot = bytes(16)
        return cls(boot, _PIDS.stat().st_ino)

    @property
    def name(self) -> str:
        """For file names: the namespace as `lsns -t pid` shows it, and the boot's beginning."""
        return f"{self.pid_namespace}-{self.boot.hex()[:8]}"

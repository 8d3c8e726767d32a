"""The pid namespace of a process: processes of one boot in one namespace see each other by pid.

Containers may share a folder although they do not see each other's processes. Each namespace has
its own agent, which reads only rings from that namespace.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_PID_NAMESPACE = Path("/proc/self/ns/pid")


@dataclass(frozen=True, slots=True)
class PidNamespace:
    """A namespace, identified by boot id (16 bytes; zeros if unknown) and inode."""

    boot: bytes
    inode: int

    @classmethod
    def here(cls) -> PidNamespace:
        """Returns the namespace of this process.

        Raises:
            OSError: there is no /proc.
        """
        try:
            boot = uuid.UUID(_BOOT_ID.read_text().strip()).bytes
        except (OSError, ValueError):
            boot = bytes(16)
        return cls(boot, _PID_NAMESPACE.stat().st_ino)

    @property
    def name(self) -> str:
        """Name for files: the inode as `lsns -t pid` shows it, and the start of the boot id."""
        return f"{self.inode}-{self.boot.hex()[:8]}"

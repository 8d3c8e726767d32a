"""The host's memory: /proc/meminfo, and the kills of /proc/vmstat."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from frtop_probe.gauges.host.subjects import known
from frtop_probe.proc.kernel_files import named_numbers, read_text

_KIB: Final = 1024


class MemorySource:
    """Bytes now; kills by the kernel for want of memory since the boot (Linux 4.13)."""

    def __init__(self, proc: Path) -> None:
        self._proc = proc

    def read(self) -> dict[str, int]:
        """Gauges of the host."""
        found = named_numbers(read_text(self._proc / "meminfo"))
        total, free = found.get("SwapTotal"), found.get("SwapFree")
        swapped = total - free if total is not None and free is not None else None
        kills = named_numbers(read_text(self._proc / "vmstat")).get("oom_kill")
        return known(
            mem_total=_bytes(found.get("MemTotal")),
            mem_available=_bytes(found.get("MemAvailable")),
            swap_used=_bytes(swapped),
            oom_kills=kills,
        )


def _bytes(kib: int | None) -> int | None:
    return None if kib is None else kib * _KIB

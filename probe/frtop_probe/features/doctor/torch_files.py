"""An installation of torch, read from its files: version, and what `strip` has left in it.

Imports and runs none of it. Reads a process's files through its /proc/PID/root.
"""

from __future__ import annotations

import os
import re
import struct
from pathlib import Path
from typing import Final

from frtop_probe.features.doctor.facts import TorchFiles
from frtop_probe.unprepared.flight_ring import INSTANCES
from frtop_probe.unprepared.static_symbols import EXPORTED, SYMBOLS, find_symbol

LIBRARY: Final = "libtorch_cpu.so"
"""The library with gloo's part of c10d, in builds for CPU and CUDA alike."""
GROUP_CLASS: Final = "_ZTVN4c10d12ProcessGroupE"
"""An exported symbol; without it, c10d's state is unreadable."""
_VERSION: Final = re.compile(r"^__version__\s*=\s*['\"]([\w.+-]{1,60})['\"]", re.MULTILINE)
_MAX_VERSION_FILE: Final = 16384
_HEADER: Final = 20


def read_torch(package: Path, root: str = "", *, symbols: bool = True) -> TorchFiles | None:
    """Reads the installation whose package folder is `package`; None if there is none.

    Args:
        package: the folder `torch`, as the process sees it.
        root: the process's root, such as /proc/77/root; "" for ours.
        symbols: whether to search the library's symbols, too, which takes 0.2 s.
    """
    library = package / "lib" / LIBRARY
    seen = Path(f"{root}{library}")
    version = read_version(Path(f"{root}{package}/version.py"))
    if not version and not os.access(seen, os.F_OK):
        return None
    if not symbols:
        return TorchFiles(version, str(library))
    try:
        descriptor = os.open(seen, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return TorchFiles(version, str(library))
    try:
        exports = find_symbol(descriptor, GROUP_CLASS, EXPORTED) is not None
        local = find_symbol(descriptor, INSTANCES["gloo"][0], SYMBOLS) is not None
    except (OSError, struct.error):
        return TorchFiles(version, str(library))
    finally:
        os.close(descriptor)
    return TorchFiles(version, str(library), exports, local)


def read_version(path: Path) -> str:
    """The version in torch/version.py, without running it; "" if it is unreadable."""
    try:
        with path.open("rb") as file:
            text = file.read(_MAX_VERSION_FILE).decode("utf-8", "replace")
    except OSError:
        return ""
    match = _VERSION.search(text)
    return match[1] if match else ""


def machine_of(path: str) -> int:
    """e_machine of a program; 0 if it is unreadable or not a 64-bit ELF file."""
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - unbuffered
            header = file.read(_HEADER)
    except OSError:
        return 0
    if len(header) < _HEADER or header[:5] != b"\x7fELF\x02":
        return 0
    return int.from_bytes(header[18:20], "little")

"""The child that looks at one process: `python -m frtop_probe.ras PID` prints what it has, as JSON.

`maps` and `environ` wait for the process's memory lock, and the library may be on a file system
that hangs. So this may be left behind at any time.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from typing import Any, Final

from frtop_probe.proc.memory import PROC, NotReadable
from frtop_probe.proc.process import identify, read_maps, refuse_if_locked
from frtop_probe.ras.library import find_library, own_pid, read_version
from frtop_probe.ras.settings import NAMES
from frtop_probe.unprepared.reader import OutsideReader

NICENESS: Final = 10
MAX_ENVIRON: Final = 1 << 20
MAX_VALUE: Final = 256


def look(pid: int) -> dict[str, Any]:
    """Looks at a process; `reason` says why that failed."""
    found: dict[str, Any] = {"pid": pid, "reason": "", "environment": {}}
    try:
        identity = identify(pid)
        found["start_ticks"] = identity.start_ticks
        refuse_if_locked(identity)
        library = find_library(read_maps(pid))
        found["own_pid"] = own_pid(pid)
    except NotReadable as error:
        return {**found, "reason": error.reason}
    if library is not None:
        version = read_version(pid, library)
        found |= {"library": library.path, "version": version.version, "source": version.source}
    found["environment"] = _environment(pid)
    return found


def _environment(pid: int) -> dict[str, str]:
    """RAS's variables: as Python has them now, else as the process was started."""
    values = {}
    with contextlib.suppress(OSError):
        descriptor = os.open(PROC / str(pid) / "environ", os.O_RDONLY | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:  # noqa: PTH123 - a descriptor
            for entry in file.read(MAX_ENVIRON).split(b"\0"):
                name, _, value = entry.partition(b"=")
                values[os.fsdecode(name)] = os.fsdecode(value)
    with contextlib.suppress(NotReadable), OutsideReader(pid) as reader:
        values = reader.environment(NAMES)
    return {name: values[name][:MAX_VALUE] for name in NAMES if name in values}


def main() -> None:
    """Looks at the process that is named, with low priority."""
    with contextlib.suppress(OSError):
        os.nice(NICENESS)
    with contextlib.suppress(BrokenPipeError, KeyboardInterrupt):
        print(json.dumps(look(int(sys.argv[1]))))  # noqa: T201 - its answer


if __name__ == "__main__":
    main()

"""The environment of a process as Python has it now, which /proc/PID/environ does not show.

`os.environ` keeps its values in the dict `posix.environ`, and changes that dict.
"""

from __future__ import annotations

import os
from collections.abc import Collection

from frtop_probe.proc.memory import NotReadable
from frtop_probe.unprepared.cpython import UNEXPECTED, Python


def read_environment(python: Python, names: Collection[str]) -> dict[str, str]:
    """Returns the variables that were asked for, if set; no other value is copied.

    Raises:
        NotReadable: the dict cannot be read.
    """
    wanted = {os.fsencode(name): name for name in names}
    found = {}
    for entry in python.entries(_environ(python)):
        name = wanted.get(python.octets(entry.key))
        if name is not None:
            found[name] = os.fsdecode(python.octets(entry.value))
    return found


def _environ(python: Python) -> int:
    module = python.find(python.modules, ("posix",)).get("posix")
    if module is None:
        raise NotReadable(UNEXPECTED, "no module posix")
    entry = python.find(python.module_dict(module.value), ("environ",)).get("environ")
    if entry is None:
        raise NotReadable(UNEXPECTED, "no posix.environ")
    return entry.value

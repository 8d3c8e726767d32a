"""Which transports beyond c10d this process can use, as seen by the recorder's thread.

A look-up in `sys.modules` takes a microsecond and blocks nobody. Reading `/proc/self/maps` would
wait for a driver call that holds the memory's lock, and delay the heartbeat. So libraries that C++
loads without a Python module are not found here.
"""

from __future__ import annotations

import sys
import time
from typing import Final

from frtop_probe.recorder.ops.graph_captures import REPLAYS, captures
from frtop_probe.transports import (
    CUDA,
    MODULES,
    ON_CUDA,
    VARIABLES,
    first_of_each,
    module_sign,
    variable_sign,
)

AGAIN_S: Final = 1.0
"""Pause between two looks of about 20 us each: engines load these modules while they start."""


class TransportWatch:
    """Looks once a second, and reports changes."""

    def __init__(self) -> None:
        self._known: tuple[tuple[str, str], ...] = ()
        self._next = 0.0

    def changed(self) -> tuple[tuple[str, str], ...] | None:
        """Returns name and sign of each transport, if they differ from those of the last call."""
        now = time.monotonic()
        if now < self._next:
            return None
        self._next = now + AGAIN_S
        found = loaded()
        if found == self._known:
            return None
        self._known = found
        return found


def loaded() -> tuple[tuple[str, str], ...]:
    """Returns name and sign of each transport that this process can use. Imports nothing.

    Replays of CUDA graphs with c10d ops count as one transport: nobody observes them either.
    """
    left_out = ON_CUDA if _variable(*CUDA) is not True else ()
    found = [
        (name, module_sign(module))
        for module, name in MODULES.items()
        if module in sys.modules and name not in left_out
    ]
    for (module, variable), name in VARIABLES.items():
        value = _variable(module, variable)
        if type(value) is dict and value:
            found.append((name, variable_sign(module, variable)))
    if captures.sign:
        found.append((REPLAYS, captures.sign))
    return first_of_each(found)


def _variable(module: str, variable: str) -> object:
    """Reads only a plain dict, so that no code of the program runs."""
    namespace = getattr(sys.modules.get(module), "__dict__", None)
    return namespace.get(variable) if type(namespace) is dict else None

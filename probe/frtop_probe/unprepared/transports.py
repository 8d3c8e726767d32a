"""Which transports past c10d a process has at hand, by what it has mapped and imported."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Final

from frtop_probe.proc.memory import NotReadable
from frtop_probe.transports import (
    MODULES,
    VARIABLES,
    by_files,
    first_of_each,
    module_sign,
    variable_sign,
)
from frtop_probe.unprepared.cpython import Python
from frtop_probe.unprepared.model import FoundTransport

AGAIN_S: Final = 20.0
"""Seconds after which all is searched again: C++ loads libraries without a module."""
_NAMES: Final = frozenset((*MODULES, *(module for module, _ in VARIABLES)))
_Table = tuple[int, int, int, int]
Signs = list[tuple[str, str]]


class TransportSearch:
    """Searches `sys.modules` and the mapped files of one process; remembers the result.

    A search reads the key of every module, some 2,000 small reads or 10 ms. Whether modules came
    or went since takes three.
    """

    def __init__(self) -> None:
        self._seen: _Table | None = None
        self._searched = 0.0
        self._known: tuple[FoundTransport, ...] | None = None

    def read(
        self, python: Python | None, files: Callable[[], Iterable[str]]
    ) -> tuple[FoundTransport, ...]:
        """Returns the transports of this moment.

        Args:
            python: Its interpreter; None where its memory may not be read.
            files: Gives the paths of its mapped files.

        Raises:
            NotReadable: nothing of this can be read.
        """
        table = _table_of(python)
        now = time.monotonic()
        if self._known is None or table != self._seen or now - self._searched > AGAIN_S:
            signs = [*_imported(python), *by_files(files())]
            self._known = tuple(FoundTransport(*one) for one in first_of_each(signs))
            self._seen, self._searched = table, now
        return self._known


def _table_of(python: Python | None) -> _Table | None:
    """What changes when a module is imported or dropped; None where it cannot be read."""
    if python is None:
        return None
    try:
        table = python.table(python.modules)
    except NotReadable:
        return None
    return python.modules, table.keys, table.used, table.count


def _imported(python: Python | None) -> Signs:
    """Name and sign of each transport that the modules show; none if they cannot be read."""
    if python is None:
        return []
    try:
        found = python.find(python.modules, _NAMES)
    except NotReadable:  # they changed while they were read
        return []
    signs = [(MODULES[name], module_sign(name)) for name in found if name in MODULES]
    for (module, variable), name in VARIABLES.items():
        if module in found and _has_entries(python, found[module].value, variable):
            signs.append((name, variable_sign(module, variable)))
    return signs


def _has_entries(python: Python, module: int, variable: str) -> bool:
    """Whether a variable of a module is a dict with entries; what cannot be read shows nothing."""
    try:
        entry = python.find(python.module_dict(module), (variable,)).get(variable)
        if entry is None or python.type_name(entry.value) != "dict":
            return False
        return python.table(entry.value).used > 0
    except NotReadable:
        return False

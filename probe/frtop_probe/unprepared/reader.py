"""Reads one process from outside: c10d's state, rings, environment, transports."""

from __future__ import annotations

import contextlib
import os
import struct
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from frtop_probe.proc.memory import (
    GONE,
    REPLACED,
    TOO_LARGE,
    Mapping,
    NotReadable,
    ProcessIdentity,
    ProcessMemory,
    executable,
    identify,
    mapped_files,
    refuse_if_locked,
)
from frtop_probe.transports import (
    CUDA,
    MODULES,
    ON_CUDA,
    VARIABLES,
    by_files,
    first_of_each,
    module_sign,
    variable_sign,
)
from frtop_probe.unprepared.c10d_state import NO_GROUPS, NO_MODULE, C10dReader
from frtop_probe.unprepared.cpython import (
    FREE_THREADED,
    NO_PYTHON,
    UNEXPECTED,
    UNKNOWN_PYTHON,
    Python,
    open_python,
)
from frtop_probe.unprepared.elf import UNKNOWN_LIBRARY
from frtop_probe.unprepared.flight_ring import RingReader
from frtop_probe.unprepared.model import C10dState, Cost, FlightRing, FoundTransport
from frtop_probe.unprepared.recorded_lines import RecordedLines
from frtop_probe.unprepared.static_symbols import StaticSymbols
from frtop_probe.unprepared.torch_layout import NO_TORCH, STRIPPED, TorchLayout, find_torch

_TRIES: Final = 3
"""A running job changes c10d's state during about one look in a thousand."""
UNCHANGING: Final = frozenset((FREE_THREADED, NO_PYTHON, STRIPPED, UNKNOWN_LIBRARY, UNKNOWN_PYTHON))
"""Reasons that hold until the process runs another program."""
_FINAL: Final = (UNCHANGING - {UNKNOWN_PYTHON}) | {
    NO_GROUPS, NO_MODULE, NO_TORCH, TOO_LARGE, REPLACED,
}  # fmt: skip
"""Reasons for which an immediate retry is useless. Unlike an unknown build, an import hides
`sys.modules` only for a moment."""
TRANSPORTS_AGAIN_S: Final = 20.0
"""Seconds between two full searches for transports: C++ loads libraries without a module."""
_TRANSPORT_MODULES: Final = frozenset((*MODULES, *(module for module, _ in (CUDA, *VARIABLES))))
_Table = tuple[int, int, int, int]
_Signs = list[tuple[str, str]]
Result = TypeVar("Result")


class UnpreparedReader:
    """Reads one process and remembers addresses. Keeps one descriptor open until `close`.

    Each look first checks that the pid still belongs to the same process: addresses of one process
    are never used on another.
    """

    def __init__(self, pid: int, *, symbols: StaticSymbols | None = None) -> None:
        """Reads only the start time.

        Readers of several processes may share `symbols`: a look-up takes 0.1 s.

        Raises:
            NotReadable: The process has ended.
        """
        self.pid = pid
        self._start_ticks = identify(pid).start_ticks
        self._symbols = symbols or StaticSymbols()
        self._memory: ProcessMemory | None = None
        self._python: Python | None = None
        self._knows_build = False
        self._layout: TorchLayout | None = None
        self._c10d: C10dReader | None = None
        self._rings: RingReader | None = None
        self._transports = _TransportSearch()

    def __enter__(self) -> UnpreparedReader:  # noqa: PYI034 - Self came with Python 3.11
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Forgets everything and closes the descriptor."""
        if self._memory is not None:
            self._memory.close()
        self._memory = self._python = self._layout = self._c10d = None
        self._rings = None

    def read(self) -> C10dState:
        """Reads c10d's state: its groups, or the reason why there are none.

        Raises:
            NotReadable: The process has ended, its pid was reused, or reading would block.
        """
        started = time.monotonic()
        identity = self._start()
        try:
            groups, reason = self._with_retries(lambda: self._open_c10d().read()), ""
        except NotReadable as error:
            groups, reason = (), error.reason
        self._check_identity()
        return C10dState(
            pid=self.pid,
            start_ticks=identity.start_ticks,
            state=identity.state,
            wchan=identity.wchan,
            groups=groups,
            reason=reason,
            cost=self._cost(started),
        )

    def rings(
        self, limit: int | None = None, since: dict[str, int] | None = None
    ) -> tuple[FlightRing, ...]:
        """Reads the newest entries of the Flight Recorder rings of this process.

        It reads the rings of the backends that groups have; if no group is left, all rings.

        Args:
            limit: Most entries per ring; None for all.
            since: By kind of ring, the id of the first entry to read.

        Raises:
            NotReadable: As for `read`; or torch is missing or has no symbols.
        """
        self._start()
        rings = self._with_retries(lambda: self._read_rings(limit, since or {}))
        self._check_identity()
        return rings

    def environment(self, names: Collection[str]) -> dict[str, str]:
        """Returns the current values of these variables in `os.environ`.

        Raises:
            NotReadable: As for `read`; or there is no Python.
        """
        self._start()
        values = self._with_retries(lambda: read_environment(self._open_python(), names))
        self._check_identity()
        return values

    def transports(self) -> tuple[FoundTransport, ...] | None:
        """Finds the transports beyond c10d that the process has loaded; None if it cannot look.

        It searches the mapped files, and also Python's modules if it may read the memory.

        Raises:
            NotReadable: The process has ended, or its pid was reused.
        """
        refuse_if_locked(self._check_identity())
        python = None
        with contextlib.suppress(NotReadable), _one_kind_of_error():
            self._start()  # needs more rights than the list of mapped files
            python = self._open_python()
        try:
            with _one_kind_of_error():
                return self._transports.read(python, lambda: mapped_files(self.pid))
        except NotReadable:
            return None

    def _start(self) -> ProcessIdentity:
        identity = self._check_identity()
        refuse_if_locked(identity)
        if self._memory is None:
            self._memory = ProcessMemory(self.pid)
        self._memory.start_look()
        return identity

    def _check_identity(self) -> ProcessIdentity:
        identity = identify(self.pid)
        if identity.start_ticks != self._start_ticks:
            self.close()
            raise NotReadable(REPLACED)
        return identity

    def _with_retries(self, look: Callable[[], Result]) -> Result:
        """Calls `look` up to three times; forgets all addresses before each retry."""
        for attempt in range(_TRIES):
            try:
                with _one_kind_of_error():
                    return look()
            except NotReadable as error:
                if error.reason in _FINAL or attempt == _TRIES - 1:
                    raise
                self._forget(exec_done=error.reason == GONE)
        raise AssertionError("unreachable")

    def _forget(self, *, exec_done: bool) -> None:
        """Forgets addresses; after an exec also the memory, because the process has a new one."""
        self._python = self._layout = self._c10d = None
        self._rings = None
        self._transports = _TransportSearch()
        if exec_done and self._memory is not None:
            self._knows_build = False
            self._memory.close()
            self._memory = ProcessMemory(self.pid)

    def _open_python(self, files: dict[str, Mapping] | None = None) -> Python:
        assert self._memory is not None
        if self._python is None:
            files = files or mapped_files(self.pid)
            try:
                self._python = open_python(self._memory, files, executable(self.pid))
            except NotReadable as error:
                if self._knows_build and error.reason == UNKNOWN_PYTHON:
                    raise NotReadable(UNEXPECTED, error.detail) from error
                raise
            self._knows_build = True
        return self._python

    def _open_layout(self, files: dict[str, Mapping] | None = None) -> TorchLayout:
        assert self._memory is not None
        if self._layout is None:
            files = files or mapped_files(self.pid)
            self._layout = find_torch(self._memory, files)
        return self._layout

    def _open_c10d(self) -> C10dReader:
        assert self._memory is not None
        if self._c10d is None:
            files = mapped_files(self.pid)
            layout = self._open_layout(files)
            self._c10d = C10dReader(self._memory, self._open_python(files), layout)
        return self._c10d

    def _read_rings(self, limit: int | None, since: dict[str, int]) -> tuple[FlightRing, ...]:
        assert self._memory is not None
        if self._rings is None:
            layout = self._open_layout()
            sites = self._call_sites(layout)
            self._rings = RingReader(self._memory, layout, self._symbols, sites)
        return self._rings.read(limit, self._ring_kinds(), since)

    def _call_sites(self, layout: TorchLayout) -> RecordedLines | None:
        assert self._memory is not None
        try:
            python = self._open_python()
        except NotReadable:  # the ring is in C++
            return None
        library = next(iter(layout.libraries.values())).mapping.path
        return RecordedLines(self._memory, python, library.rpartition("/lib/")[0])

    def _ring_kinds(self) -> frozenset[str]:
        """Returns the kinds of backend that the groups have; empty if there are no groups.

        Searching an unused library's symbols would take 0.2 s, or 2 s from a cold disk.
        """
        try:
            groups = self._open_c10d().read()
        except NotReadable:
            return frozenset()
        kinds = {backend.kind for group in groups for backend in group.backends}
        return frozenset("nccl" if kind == "nccl2" else kind for kind in kinds)

    def _cost(self, started: float) -> Cost:
        assert self._memory is not None
        ms = 1000 * (time.monotonic() - started)
        return Cost(round(ms, 3), self._memory.reads, self._memory.bytes)


@contextmanager
def _one_kind_of_error() -> Iterator[None]:
    """Turns errors of parsers, from bytes that changed during the read, into `NotReadable`."""
    try:
        yield
    except (struct.error, ValueError, LookupError, OverflowError, MemoryError) as error:
        raise NotReadable(UNEXPECTED, repr(error)) from error


def read_environment(python: Python, names: Collection[str]) -> dict[str, str]:
    """Returns these variables as Python has them now; copies no other value.

    `os.environ` keeps its values in the dict `posix.environ`. /proc/PID/environ does not show
    changes made by the program.

    Raises:
        NotReadable: The dict cannot be read.
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


class _TransportSearch:
    """Searches `sys.modules` and the mapped files of one process; remembers the result.

    A search reads the key of every module: about 2,000 small reads, 10 ms. Three reads show whether
    the modules have changed.
    """

    def __init__(self) -> None:
        self._seen: _Table | None = None
        self._searched = 0.0
        self._known: tuple[FoundTransport, ...] | None = None

    def read(
        self, python: Python | None, files: Callable[[], Iterable[str]]
    ) -> tuple[FoundTransport, ...]:
        """Returns the transports now loaded; without `python` the memory may not be read.

        Raises:
            NotReadable: Neither memory nor files can be read.
        """
        table = _table_of(python)
        now = time.monotonic()
        if self._known is None or table != self._seen or now - self._searched > TRANSPORTS_AGAIN_S:
            signs = [*_imported(python), *by_files(files())]
            self._known = tuple(FoundTransport(*one) for one in first_of_each(signs))
            self._seen, self._searched = table, now
        return self._known


def _table_of(python: Python | None) -> _Table | None:
    """Returns a value that changes with each import and removal; None if unreadable."""
    if python is None:
        return None
    try:
        table = python.table(python.modules)
    except NotReadable:
        return None
    return python.modules, table.keys, table.used, table.count


def _imported(python: Python | None) -> _Signs:
    """Returns name and sign of each transport that the modules show; [] if unreadable."""
    if python is None:
        return []
    try:
        found = python.find(python.modules, _TRANSPORT_MODULES)
    except NotReadable:  # they changed during the read
        return []

    def filled(module: str, variable: str) -> bool:
        return module in found and _is_filled(python, found[module].value, variable)

    left_out = () if filled(*CUDA) else ON_CUDA
    signs = [
        (MODULES[module], module_sign(module))
        for module in found
        if module in MODULES and MODULES[module] not in left_out
    ]
    for (module, variable), name in VARIABLES.items():
        if filled(module, variable):
            signs.append((name, variable_sign(module, variable)))
    return signs


def _is_filled(python: Python, module: int, variable: str) -> bool:
    """Returns whether a variable of a module is True, or a dict with entries."""
    try:
        entry = python.find(python.module_dict(module), (variable,)).get(variable)
        if entry is None:
            return False
        kind = python.type_name(entry.value)
        if kind == "dict":
            return python.table(entry.value).used > 0
        return kind == "bool" and python.truth(entry.value)
    except NotReadable:
        return False

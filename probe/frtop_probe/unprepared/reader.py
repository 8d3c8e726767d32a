"""All that can be read of one process from outside, with addresses remembered between looks."""

from __future__ import annotations

import contextlib
import os
import struct
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final, TypeVar

from frtop_probe.proc.memory import GONE, PROC, REPLACED, TOO_LARGE, NotReadable, ProcessMemory
from frtop_probe.proc.process import (
    Mapping,
    ProcessIdentity,
    executable,
    identify,
    mapped_files,
    refuse_if_locked,
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
from frtop_probe.unprepared.model import (
    C10dState,
    Cost,
    FlightRing,
    FoundTransport,
    TensorInfo,
    Work,
)
from frtop_probe.unprepared.recorded_lines import RecordedLines
from frtop_probe.unprepared.static_symbols import StaticSymbols
from frtop_probe.unprepared.torch_layout import NO_TORCH, STRIPPED, TorchLayout, find_torch
from frtop_probe.unprepared.transports import TransportSearch

_TRIES: Final = 3
"""c10d's state may change while it is read: in about one look of a thousand at a running job."""
UNCHANGING: Final = frozenset((FREE_THREADED, NO_PYTHON, STRIPPED, UNKNOWN_LIBRARY, UNKNOWN_PYTHON))
"""Reasons that only another program in the same process changes."""
_FINAL: Final = (UNCHANGING - {UNKNOWN_PYTHON}) | {
    NO_GROUPS, NO_MODULE, NO_TORCH, TOO_LARGE, REPLACED,
}  # fmt: skip
"""Reasons that another try at once does not change. An import may hide `sys.modules` for a moment,
as an unknown build does."""
Result = TypeVar("Result")


class UnpreparedReader:
    """Reads one process. Keeps one descriptor open until `close`.

    Every look first checks that the pid is still the same process, so that remembered addresses
    are never used on another one.
    """

    def __init__(
        self, pid: int, *, symbols: StaticSymbols | None = None, proc: Path = PROC
    ) -> None:
        """Reads nothing but the start time.

        Args:
            pid: Of the process.
            symbols: Shared by the readers of several processes, as a look-up takes 0.1 s.
            proc: Where /proc is.

        Raises:
            NotReadable: the process has ended.
        """
        self.pid = pid
        self._proc = proc
        self._start_ticks = identify(pid, proc).start_ticks
        self._symbols = symbols or StaticSymbols()
        self._memory: ProcessMemory | None = None
        self._python: Python | None = None
        self._knows_build = False
        self._layout: TorchLayout | None = None
        self._c10d: C10dReader | None = None
        self._rings: RingReader | None = None
        self._transports = TransportSearch()

    def __enter__(self) -> UnpreparedReader:  # noqa: PYI034 - Self came with Python 3.11
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Forgets everything, and closes the descriptor."""
        if self._memory is not None:
            self._memory.close()
        self._memory = self._python = self._layout = self._c10d = None
        self._rings = None

    def read(self) -> C10dState:
        """Reads c10d's state.

        Returns:
            The state, with groups or with the reason why there are none.

        Raises:
            NotReadable: the process has ended, another one has its pid, or reading would block.
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
        """Reads the newest entries of each Flight Recorder ring that this process has.

        A ring is read only if a group has such a backend; all are if there is no group any more.

        Args:
            limit: Entries per ring at most; None for all.
            since: By kind of ring, the id of the first entry that is wanted.

        Raises:
            NotReadable: as for `read`; there is no torch; or its symbols are not to be found.
        """
        self._start()
        rings = self._with_retries(lambda: self._read_rings(limit, since or {}))
        self._check_identity()
        return rings

    def environment(self, names: Collection[str]) -> dict[str, str]:
        """Returns these variables as `os.environ` has them now.

        Raises:
            NotReadable: as for `read`; or there is no Python.
        """
        self._start()
        values = self._with_retries(lambda: read_environment(self._open_python(), names))
        self._check_identity()
        return values

    def transports(self) -> tuple[FoundTransport, ...] | None:
        """Finds the transports past c10d that the process has at hand.

        By what it has mapped, and by Python's modules where its memory may be read. That is
        searched again when modules came or went, and now and then.

        Returns:
            None when neither can be read.

        Raises:
            NotReadable: the process has ended, or another one has its pid.
        """
        refuse_if_locked(self._check_identity())
        python = None
        with contextlib.suppress(NotReadable), _one_kind_of_error():
            self._start()  # what is mapped needs less of a right
            python = self._open_python()
        try:
            with _one_kind_of_error():
                return self._transports.read(python, lambda: mapped_files(self.pid, self._proc))
        except NotReadable:
            return None

    def tensor_at(self, address: int) -> TensorInfo:
        """Describes the tensor of a Python object, as in `<Tensor at 0x...>` of a stack's locals.

        Raises:
            NotReadable: as for `read`; or it could not be validated.
        """
        self._start()
        with _one_kind_of_error():
            return self._open_c10d().tensor_at(address)

    def work_at(self, address: int) -> Work:
        """Reads the op of a Python object, as in `<Work at 0x...>` of a stack's locals.

        Raises:
            NotReadable: as for `read`; or it could not be validated.
        """
        self._start()
        with _one_kind_of_error():
            return self._open_c10d().work_at(address)

    def _start(self) -> ProcessIdentity:
        identity = self._check_identity()
        refuse_if_locked(identity)
        if self._memory is None:
            self._memory = ProcessMemory(self.pid, proc=self._proc)
        self._memory.start_look()
        return identity

    def _check_identity(self) -> ProcessIdentity:
        identity = identify(self.pid, self._proc)
        if identity.start_ticks != self._start_ticks:
            self.close()
            raise NotReadable(REPLACED)
        return identity

    def _with_retries(self, look: Callable[[], Result]) -> Result:
        """Calls `look`, which forgets all addresses after a failure and tries again."""
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
        """Forgets addresses; after an exec also the memory, which is no longer the process's."""
        self._python = self._layout = self._c10d = None
        self._rings = None
        self._transports = TransportSearch()
        if exec_done and self._memory is not None:
            self._knows_build = False
            self._memory.close()
            self._memory = ProcessMemory(self.pid, proc=self._proc)

    def _open_python(self, files: dict[str, Mapping] | None = None) -> Python:
        assert self._memory is not None
        if self._python is None:
            files = files or mapped_files(self.pid, self._proc)
            try:
                self._python = open_python(self._memory, files, executable(self.pid, self._proc))
            except NotReadable as error:
                if self._knows_build and error.reason == UNKNOWN_PYTHON:
                    raise NotReadable(UNEXPECTED, error.detail) from error
                raise
            self._knows_build = True
        return self._python

    def _open_layout(self, files: dict[str, Mapping] | None = None) -> TorchLayout:
        assert self._memory is not None
        if self._layout is None:
            files = files or mapped_files(self.pid, self._proc)
            self._layout = find_torch(self._memory, files)
        return self._layout

    def _open_c10d(self) -> C10dReader:
        assert self._memory is not None
        if self._c10d is None:
            files = mapped_files(self.pid, self._proc)
            layout = self._open_layout(files)
            self._c10d = C10dReader(self._memory, self._open_python(files), layout)
        return self._c10d

    def _read_rings(self, limit: int | None, since: dict[str, int]) -> tuple[FlightRing, ...]:
        assert self._memory is not None
        if self._rings is None:
            layout = self._open_layout()
            sites = self._call_sites(layout)
            self._rings = RingReader(self._memory, layout, self._symbols, self._proc, sites)
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
        """Returns the kinds of backend that the groups have; empty when there are no groups.

        The symbols of a library that is not used are not searched: 0.2 s, 2 s from a cold disk.
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
    """Turns what a parser raises on bytes that changed under it into `NotReadable`."""
    try:
        yield
    except (struct.error, ValueError, LookupError, OverflowError, MemoryError) as error:
        raise NotReadable(UNEXPECTED, repr(error)) from error


def read_environment(python: Python, names: Collection[str]) -> dict[str, str]:
    """Returns the variables that were asked for as Python has them now; copies no other value.

    `os.environ` keeps its values in the dict `posix.environ`. /proc/PID/environ does not show
    what the program changed there.

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

"""The child that reads processes and searches for jobs.

A request has `pid`, and asks for `c10d` (a bool), `rings` (entries per ring, or null; from those
with the ids in `since` on, by kind of ring), `environment` (names), `tensors` and `works`
(addresses of Python objects), `transports` (a bool: those past c10d). With both c10d and rings the
answer has `after`, too: c10d's state once more, read after the rings. A request with `scan` (pid
and start ticks of each process that has a recorder) asks for the jobs of this host instead; the
memory of those in `stuck` (pids) is not read.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, Final

from frtop_probe.proc import line_server
from frtop_probe.proc.memory import GONE, PROC, REPLACED, NotReadable
from frtop_probe.proc.process import named_after
from frtop_probe.unprepared.cpython import UNEXPECTED
from frtop_probe.unprepared.discovery import proc_reader
from frtop_probe.unprepared.discovery.claims import NAMES
from frtop_probe.unprepared.discovery.facts import SCAN_FAILED, Discovery
from frtop_probe.unprepared.discovery.scanner import Scanner
from frtop_probe.unprepared.model import TensorInfo, Work
from frtop_probe.unprepared.reader import UnpreparedReader
from frtop_probe.unprepared.ring_table import table_of
from frtop_probe.unprepared.static_symbols import StaticSymbols

_MAX_READERS: Final = 512
"""Processes whose addresses, and one descriptor each, are kept."""


class Readers:
    """The readers of the processes that were asked for, kept between requests."""

    def __init__(self) -> None:
        """Starts with none."""
        self._readers: dict[int, UnpreparedReader] = {}
        self._symbols = StaticSymbols()
        self._stuck: frozenset[int] = frozenset()
        self._scanner = Scanner(blocking=self._read_blocking, run_time_environ=self._environment_of)

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answers one request; `reason` says why an answer has nothing."""
        if "scan" in request:
            recorded = frozenset((int(pid), int(ticks)) for pid, ticks in request["scan"])
            self._stuck = frozenset(map(int, request.get("stuck", ())))
            self._drop_ended()
            try:
                return asdict(self._scanner.scan(recorded))
            except Exception as error:  # noqa: BLE001 - the addresses of all ranks would be lost
                return asdict(Discovery(reasons=(f"{SCAN_FAILED}: {error!r}",)))
        pid = int(request["pid"])
        answer: dict[str, Any] = {"pid": pid, "reason": ""}
        try:
            self._fill(answer, request, self._reader(pid))
        except NotReadable as error:
            answer["reason"] = error.reason
            if error.reason in (GONE, REPLACED):
                self._drop(pid)
        except Exception as error:  # noqa: BLE001 - the addresses of all ranks would be lost
            answer["reason"] = f"{UNEXPECTED}: {error!r}"
            self._drop(pid)
        return answer

    def _fill(
        self, answer: dict[str, Any], request: dict[str, Any], reader: UnpreparedReader
    ) -> None:
        if request.get("transports"):  # of a process whose memory is not ours to read, too
            found = reader.transports()
            answer["transports"] = None if found is None else [asdict(one) for one in found]
        if request.get("c10d", True):
            answer["c10d"] = asdict(reader.read())
        if names := request.get("environment"):
            answer["environment"] = reader.environment(names)
        answer["tensors"] = _each(request.get("tensors", ()), reader.tensor_at)
        answer["works"] = _each(request.get("works", ()), reader.work_at)
        if (limit := request.get("rings")) is not None:
            answer["rings"] = [table_of(ring) for ring in reader.rings(limit, request.get("since"))]
            if "c10d" in answer:
                answer["after"] = asdict(reader.read())

    def _read_blocking(self, pid: int, names: tuple[str, ...]) -> proc_reader.Blocking:
        if pid in self._stuck:
            raise TimeoutError
        with named_after(pid):
            return proc_reader.read_blocking(pid, names)

    def _environment_of(self, pid: int) -> dict[str, str] | None:
        if pid in self._stuck:
            return None
        try:
            with named_after(pid):
                return self._reader(pid).environment(NAMES)
        except NotReadable as error:
            if error.reason in (GONE, REPLACED):
                self._drop(pid)
            return None

    def _reader(self, pid: int) -> UnpreparedReader:
        reader = self._readers.pop(pid, None)
        if reader is None:
            while len(self._readers) >= _MAX_READERS:
                self._drop(next(iter(self._readers)))  # the one that was not used for longest
            reader = UnpreparedReader(pid, symbols=self._symbols)
        self._readers[pid] = reader
        return reader

    def _drop_ended(self) -> None:
        """A host starts and ends processes all day, and nobody asks for those that ended."""
        for pid in [pid for pid in self._readers if not os.path.exists(f"{PROC}/{pid}")]:  # noqa: PTH110 - hot
            self._drop(pid)

    def _drop(self, pid: int) -> None:
        if (reader := self._readers.pop(pid, None)) is not None:
            reader.close()


def _each(
    addresses: list[int], look: Callable[[int], TensorInfo | Work]
) -> dict[str, dict[str, Any]]:
    """Describes objects by address; those that cannot be validated are left out."""
    found = {}
    for address in addresses:
        with contextlib.suppress(NotReadable):
            found[str(address)] = asdict(look(address))
    return found


def main() -> None:
    """Serves on standard input and output, with low priority."""
    line_server.serve(lambda: Readers().answer)


if __name__ == "__main__":
    main()

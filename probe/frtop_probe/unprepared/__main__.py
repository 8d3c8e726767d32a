"""The child that reads processes and searches for jobs.

A request with `pid` gets c10d's state, and more on request: `rings` (a number of entries per ring,
from the ids in `since`, by kind of ring), `environment` (names), `transports` (those beyond c10d).
With rings, the answer also has `after`: c10d's state again, read after them. A request with `scan`
(pid and start ticks of each process with a recorder) gets the jobs of this host; the child reads
no memory of the pids in `stuck`.
"""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import Any, Final

from frtop_probe.proc import line_server
from frtop_probe.proc.memory import GONE, REPLACED, NotReadable, named_after
from frtop_probe.unprepared.cpython import UNEXPECTED
from frtop_probe.unprepared.discovery import proc_reader
from frtop_probe.unprepared.discovery.claims import NAMES
from frtop_probe.unprepared.discovery.facts import SCAN_FAILED, Discovery
from frtop_probe.unprepared.discovery.scanner import Scanner
from frtop_probe.unprepared.model import ring_json
from frtop_probe.unprepared.reader import UnpreparedReader
from frtop_probe.unprepared.static_symbols import StaticSymbols

_MAX_READERS: Final = 512
"""Most readers; each keeps the addresses of its process, and one descriptor."""


class Readers:
    """The readers of processes, kept between requests."""

    def __init__(self) -> None:
        self._readers: dict[int, UnpreparedReader] = {}
        self._symbols = StaticSymbols()
        self._stuck: frozenset[int] = frozenset()
        self._scanner = Scanner(blocking=self._read_blocking, run_time_environ=self._environment_of)

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answers one request; `reason` says why an answer is empty."""
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
        if request.get("transports"):  # first: these need no right to read memory
            found = reader.transports()
            answer["transports"] = None if found is None else [asdict(one) for one in found]
        answer["c10d"] = asdict(reader.read())
        if names := request.get("environment"):
            answer["environment"] = reader.environment(names)
        if (limit := request.get("rings")) is not None:
            rings = reader.rings(limit, request.get("since"))
            answer["rings"] = list(map(ring_json, rings))
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
                self._drop(next(iter(self._readers)))  # the least recently used
            reader = UnpreparedReader(pid, symbols=self._symbols)
        self._readers[pid] = reader
        return reader

    def _drop_ended(self) -> None:
        """Drops ended processes, which nobody asks about."""
        for pid in [pid for pid in self._readers if not os.path.exists(f"/proc/{pid}")]:  # noqa: PTH110 - hot
            self._drop(pid)

    def _drop(self, pid: int) -> None:
        if (reader := self._readers.pop(pid, None)) is not None:
            reader.close()


def main() -> None:
    """Serves on standard input and output, with low priority."""
    line_server.serve(lambda: Readers().answer)


if __name__ == "__main__":
    main()

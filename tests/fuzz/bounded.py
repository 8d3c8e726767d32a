"""Tries inputs on a target within bounds of time and memory; keeps those that break a promise.

The process that tries them may crash, hang, or be killed. So it is a child, whose current input
lies in memory that its parent shares.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import resource
import signal
import struct
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from frtop_probe.proc import child_process
from fuzz.target import Take, Target

INPUT_S: Final = 5.0
"""Seconds of CPU time that one input may take: a thousand times what most take."""
STILL_S: Final = 300.0
"""Seconds in which an input that gets no CPU time is said to wait for something."""
INPUT_BYTES: Final = 256 << 20
"""Bytes of memory that one input may take, of at most some 100 kB."""
ALL_BYTES: Final = 3 << 30
"""Bytes of address space that a child may add: a guard of the machine."""
FORBIDDEN: Final = frozenset((
    "pickle.find_class", "os.system", "os.exec", "os.posix_spawn", "os.fork", "subprocess.Popen",
    "socket.connect", "ctypes.dlopen", "shutil.rmtree",
))  # fmt: skip
"""Events of `sys.audit` that no input may cause."""
_HEAD: Final = struct.Struct("=6qd")


class BrokenPromise(AssertionError):
    """An input was taken or refused, but not as promised."""


class Shared:
    """What child and parent share: the current input, and counts."""

    def __init__(self, most: int) -> None:
        self.map = mmap.mmap(-1, _HEAD.size + max(most, 1) + 8)
        self.count = self.taken = self.faults = self.size = self.peak = self.replayed = 0
        self.longest_s = 0.0

    def publish(self) -> None:
        _HEAD.pack_into(
            self.map, 0, self.count, self.taken, self.faults, self.size, self.peak,
            self.replayed, self.longest_s,
        )  # fmt: skip

    def refresh(self) -> None:
        (self.count, self.taken, self.faults, self.size, self.peak, self.replayed,
         self.longest_s) = _HEAD.unpack_from(self.map)  # fmt: skip

    def put(self, data: bytes) -> None:
        self.size = len(data)
        self.map[_HEAD.size : _HEAD.size + len(data)] = data

    @property
    def data(self) -> bytes:
        return self.map[_HEAD.size : _HEAD.size + max(0, self.size)]


class _Audit:
    """Sees what this process does, from the first use on: such a hook cannot be removed."""

    def __init__(self) -> None:
        self.on = False
        self.events: list[str] = []
        sys.addaudithook(self._note)

    def _note(self, event: str, arguments: tuple[object, ...]) -> None:
        if self.on and event in FORBIDDEN:
            self.events.append(f"{event} {arguments!r:.200}")


_audit = cache(_Audit)


class Trial:
    """Tries inputs in this process."""

    def __init__(self, target: Target, take: Take, failures: Path | None, shared: Shared) -> None:
        """Without a folder for `failures`, a failing input raises."""
        self.target, self.take, self.failures, self.shared = target, take, failures, shared
        self._known: set[str] = set()
        _, self._base = _used()
        self._audit = _audit()

    def try_input(self, data: bytes) -> None:
        shared, audit = self.shared, self._audit
        data = data[: self.target.most]
        shared.put(data)
        shared.publish()
        error: Exception | None = None
        audit.events.clear()
        begin, _ = _used()
        audit.on = True
        try:
            shared.taken += self.take(data)
        except Exception as found:  # noqa: BLE001 - any is a fault
            error = found
        finally:
            audit.on = False
        end, peak = _used()
        spent, grown = end - begin, peak - self._base
        if error is None and audit.events:
            error = BrokenPromise(f"forbidden: {'; '.join(audit.events)}")
        elif error is None and spent > INPUT_S:
            error = BrokenPromise(f"took {spent:.1f} s of CPU time")
        elif error is None and grown > INPUT_BYTES:
            error = BrokenPromise(f"took {grown >> 20} MiB of memory")
        if grown > INPUT_BYTES:
            self._base = peak
        shared.count += 1
        shared.longest_s = max(shared.longest_s, spent)
        shared.peak = max(shared.peak, grown)
        if error is not None:
            shared.faults += 1
            self._report(data, error)
        shared.publish()

    def _report(self, data: bytes, error: Exception) -> None:
        if self.failures is None:
            raise error
        text = "".join(traceback.format_exception(error))
        frames = traceback.extract_tb(error.__traceback__)[-6:]
        where = [f"{one.filename}:{one.lineno}" for one in frames]
        kind = hashlib.sha256(repr((type(error), where)).encode()).hexdigest()[:8]
        if isinstance(error, BrokenPromise):
            kind = f"{kind}-{str(error).split()[0]}"
        if kind not in self._known:  # one input for each place
            self._known.add(kind)
            keep(self.failures, self.target, kind, data, text)


def keep(failures: Path, target: Target, kind: str, data: bytes, text: str) -> None:
    """Writes a failing input, and beside it what happened and how to try it again."""
    failures.mkdir(parents=True, exist_ok=True)
    path = failures / f"{target.name}-{kind}"
    path.write_bytes(data)
    again = f"again, from tests/: python -m fuzz --target {target.name} {path.absolute()}"
    path.with_name(f"{path.name}.txt").write_text(f"{text}\n{again}\n")
    print(
        f"FAULT {target.name} {kind}: {text.strip().splitlines()[-1][:300]}\n  {again}", flush=True
    )


def _used() -> tuple[float, int]:
    """CPU time of this thread in seconds, and the most memory of this process in bytes."""
    found = resource.getrusage(resource.RUSAGE_THREAD)
    return found.ru_utime + found.ru_stime, found.ru_maxrss << 10


@dataclass
class Result:
    """What came of a child."""

    count: int = 0
    taken: int = 0
    faults: int = 0
    longest_s: float = 0.0
    peak: int = 0
    seconds: float = 0.0
    ended: str = ""

    def add(self, other: Result) -> None:
        self.count += other.count
        self.taken += other.taken
        self.faults += other.faults
        self.longest_s = max(self.longest_s, other.longest_s)
        self.peak = max(self.peak, other.peak)
        self.seconds += other.seconds


def run_child(
    target: Target,
    folder: Path,
    failures: Path,
    work: Callable[[Trial], None],
    end_s: float,
) -> Result:
    """Runs `work` in a child, and watches it. Seeds and inputs of earlier children do not count."""
    shared, begin = Shared(target.most), time.monotonic()
    shared.count = -1  # until the child is ready
    shared.publish()
    parent = os.getpid()
    child = os.fork()
    if not child:
        status = 1
        try:
            child_process.die_with(parent)
            _in_child(target, folder, failures, work, shared)
            status = 0
        except BaseException:  # noqa: BLE001 - the parent says that it ended
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(status)
    ended = _watch(child, shared, end_s)
    shared.refresh()
    if ended:
        keep(failures, target, ended.split()[0], shared.data, f"the child {ended}")
        shared.faults += 1
    return Result(
        max(0, shared.count - shared.replayed), shared.taken, shared.faults,
        shared.longest_s, shared.peak, time.monotonic() - begin, ended,
    )  # fmt: skip


def _in_child(
    target: Target, folder: Path, failures: Path, work: Callable[[Trial], None], shared: Shared
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with ExitStack() as stack:
        take = target.prepare(folder, stack)
        used = int(Path("/proc/self/statm").read_text().split()[0]) * mmap.PAGESIZE
        resource.setrlimit(resource.RLIMIT_AS, (used + ALL_BYTES, resource.RLIM_INFINITY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        shared.count = 0
        work(Trial(target, take, failures, shared))


def _watch(child: int, shared: Shared, end_s: float) -> str:
    """Waits for the child; ends it if one input takes too long. Returns how it failed, or ""."""
    count, ticks, moved = -1, 0, time.monotonic()
    latest, reason = time.monotonic() + end_s + 2 * STILL_S, ""
    try:
        while not reason:
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid:
                code = os.waitstatus_to_exitcode(status)
                child = 0
                return f"crashed with status {code}" if code else ""
            shared.refresh()
            now, used = time.monotonic(), _ticks(child)
            if shared.count != count:
                count, ticks, moved = shared.count, used, now
            cpu_s = (used - ticks) / os.sysconf("SC_CLK_TCK")
            if count >= 0 and (cpu_s > 4 * INPUT_S or (now - moved > STILL_S and cpu_s < 1)):
                reason = f"hangs: {cpu_s:.0f} s of CPU time for one input"
            elif now > latest:
                reason = "overran: its inputs took too long together"
            time.sleep(0.2)
        return reason
    finally:
        if child:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def _ticks(pid: int) -> int:
    with suppress(OSError, IndexError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])
    return 0

"""One rank of this host as the agent tracks it, from either source.

`RingRank` reads a recorder's ring, `UnpreparedRank` the process from outside.
"""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, TypeVar

from msgspec import structs

from frtop_probe import wire
from frtop_probe.proc import exit_status, processes
from frtop_probe.proc.exit_status import ExitStatus
from frtop_probe.proc.output_places import OutputPlace

_CPU_STEP_NS: Final = 20_000_000
_IO_STEP: Final = 4096
_RSS_STEP: Final = 16 * 1024 * 1024
FLUSH_TICKS: Final = 8
"""Ticks between rare updates: for small changes of a process, and for slow reads."""
LIVED_NS: Final = 5_000_000_000
"""A child that lived for a shorter time was a command of the program, not a worker."""
_NAMED_NS: Final = 1_000_000_000
"""By this age, a worker has given itself a name."""
_MOST: Final = 8
_MOST_FOLLOWED: Final = 512
Value = TypeVar("Value")


class TrackedRank(ABC):
    """The agent's state of one rank.

    Attributes:
        key: the agent's number for the rank.
        pid: its process.
        start_ticks: when that process started, as /proc has it.
        lives: false from the moment of death.
        pidfd: None without a living process, and on kernels without pidfds.
        exit_info: set once it has been sent.
        held: a requested tool holds the process now, so /proc shows what the tool does, not what
            the rank does.
        children: its ended children.
        gauges: of the GPUs that it uses; None unless it is known to use one.
        output_places: where its output went when it was last looked at.
    """

    def __init__(
        self, key: int, pid: int, start_ticks: int, *, lives: bool, pidfd: int | None
    ) -> None:
        self.key = key
        self.pid = pid
        self.start_ticks = start_ticks
        self.lives = lives
        self.pidfd = pidfd
        self.died_ns: int | None = None
        self.exit: ExitStatus | None = None
        self.oom_file = ""
        self.exit_info: wire.ExitInfo | None = None
        self.held = False
        self.recorder_note = ""
        """Why its recorder cannot be used, or ""."""
        self.children = EndedChildren()
        self.gauges: wire.Gauges | None = None
        self.output_places: tuple[OutputPlace, ...] = ()
        self._gauges_sent: wire.Gauges | None = None
        self._identity: wire.Identity | None = None
        self._process: wire.Process | None = None
        self._process_ticks = 0

    @property
    @abstractmethod
    def name(self) -> str:
        """Its name in a note about the host."""

    @property
    def identity(self) -> wire.Identity | None:
        """Its identity at the last update."""
        return self._identity

    @property
    def job(self) -> wire.Job | None:
        """The job at the last update."""
        return self._identity.job if self._identity is not None else None

    @property
    def group_names(self) -> Mapping[int, str] | None:
        """Names of its groups by the address of their objects; None if a recorder knows them.

        With these names, stacks include the local variables of torch's own frames.
        """
        return None

    @abstractmethod
    def update(self, now_ns: int) -> wire.RankUpdate | None:
        """Reads the rank; returns what changed since the last call, None if nothing did."""

    def end(self, now_ns: int, oom_kills: int) -> wire.RankUpdate:
        """Reads the rank a last time; returns its full state with the exit info."""
        self.lives = False
        self.died_ns = self.died_ns or now_ns
        clean = self._read_last(now_ns)
        self.exit_info = self._exit_info(now_ns, oom_kills, clean=clean)
        self._process = None
        self.release()
        return self.full()

    def _read_last(self, now_ns: int) -> bool:  # noqa: ARG002 - only some read anything
        """Reads what the rank left behind; returns whether its recorder saw a normal exit."""
        return False

    @abstractmethod
    def full(self) -> wire.RankUpdate:
        """The full state at the last update."""

    @abstractmethod
    def last_sign_ns(self) -> int:
        """When it was last known to be alive."""

    def status(self) -> wire.RankStatus | None:
        """The current status from its recorder; None without a recorder."""
        return None

    def recent_ops(self, limit: int) -> tuple[tuple[wire.Op, ...], int]:  # noqa: ARG002
        """The newest `limit` ops, oldest first, and how many ops in between cannot be read."""
        return (), 0

    async def read_ops(self, limit: int) -> None:  # noqa: B027 - only some have it
        """Reads the ops for `recent_ops`, if that takes time."""

    def recent_marks(self, since_ns: int, limit: int) -> tuple[wire.Mark, ...]:  # noqa: ARG002
        """The newest `limit` marks from `since_ns` on, oldest first."""
        return ()

    @property
    def ops_note(self) -> str:
        """Where its ops come from, or why there are none; "" for a recorder's ring."""
        return ""

    @property
    def record(self) -> str:
        """Folder for the black box; "" if no box is wanted, or if that is not known yet."""
        return self._identity.record if self._identity is not None else ""

    @property
    def progress(self) -> Hashable:
        """A value that changes when an op is issued or completed."""
        return None

    @property
    def history_stamp(self) -> Hashable:
        """A value that changes when its history does."""
        return self.progress

    @property
    @abstractmethod
    def has_failed(self) -> bool:
        """Whether a dead rank failed, as far as known."""

    @property
    def ended_by_exception(self) -> bool:
        """Whether an exception ended the program; the process may still run."""
        return False

    def reread(self, now_ns: int) -> wire.RankUpdate:
        """The full state now; does not affect what `update` returns next."""
        full = self.full()
        if self.lives or full.exit_info is not None:
            return full
        return structs.replace(
            full, process=None, exit_info=self._exit_info(now_ns, 0, clean=False)
        )

    def close(self) -> None:  # noqa: B027 - as above
        """Closes the sources that it reads."""

    def remove_files(self) -> None:  # noqa: B027 - as above
        """Removes files that the recorder left behind."""

    def update_exit(self) -> None:
        """Reads how the process ended, if the kernel already shows it."""
        if self.exit is None:
            self.exit = exit_status.read_exit_status(self.pidfd, self.pid, self.start_ticks)

    def release(self) -> None:
        """Closes the pidfd."""
        if self.pidfd is not None:
            with suppress(OSError):
                os.close(self.pidfd)
            self.pidfd = None

    def _exit_info(self, now_ns: int, oom_kills: int, *, clean: bool) -> wire.ExitInfo:
        ended = self.exit or ExitStatus()
        return wire.ExitInfo(
            at_ns=self.died_ns or now_ns,
            exit_code=ended.code,
            signal=ended.signal,
            clean=clean and ended.signal is None and ended.code in (0, None),
            oom_kills=oom_kills,
        )

    def _news(self, name: str, value: Value) -> Value | None:
        """Returns a value if it differs from the last one under this name, and remembers it."""
        if value == getattr(self, name):
            return None
        setattr(self, name, value)
        return value

    def _new_process(self) -> wire.Process | None:
        if not self.lives or self.held:
            return None
        process, children = processes.read_with_children(self.pid)
        if process is None or process.state in "ZX":
            return None
        self.children.update(children, time.monotonic_ns())
        if process == self._process:
            return None
        self._process_ticks += 1
        known = self._process
        if known is not None and self._process_ticks < FLUSH_TICKS and _alike(known, process):
            return None
        self._process_ticks = 0
        self._process = process
        return process


def _alike(old: wire.Process, new: wire.Process) -> bool:
    """Whether the difference is too small to send at once."""
    return (
        (old.state, old.wchan, old.syscall, old.file, old.threads, old.children, old.parent)
        == (new.state, new.wchan, new.syscall, new.file, new.threads, new.children, new.parent)
        and new.cpu_ns - old.cpu_ns < _CPU_STEP_NS
        and new.io_bytes - old.io_bytes < _IO_STEP
        and abs(new.rss - old.rss) < _RSS_STEP
    )


@dataclass(slots=True)
class _Child:
    start_ticks: int
    name: str
    seen_ns: int
    named: bool = False


class EndedChildren:
    """Tracks the children of a rank's main thread from tick to tick.

    Nothing else shows a killed worker that its parent has reaped.
    """

    def __init__(self) -> None:
        self._living: dict[int, _Child] = {}
        self._ended: deque[wire.EndedChild] = deque(maxlen=_MOST)

    def newest(self) -> tuple[wire.EndedChild, ...]:
        """The children that ended last, oldest first."""
        return tuple(self._ended)

    def update(self, pids: Sequence[int], now_ns: int) -> None:
        """Takes in the current children."""
        for pid in self._living.keys() - set(pids):
            child = self._living.pop(pid)
            found = processes.read_stat(pid)
            is_gone = found is None or found.start_ticks != child.start_ticks or found.has_ended
            if is_gone and now_ns - child.seen_ns >= LIVED_NS:
                self._ended.append(wire.EndedChild(pid, child.name, now_ns))
        for pid in pids[:_MOST_FOLLOWED]:
            known = self._living.get(pid)
            if known is not None and (known.named or now_ns - known.seen_ns < _NAMED_NS):
                continue
            found = processes.read_stat(pid) if processes.is_own(pid) else None
            if found is None or (known is None and found.has_ended):
                continue
            seen_ns = now_ns if known is None else known.seen_ns
            self._living[pid] = _Child(found.start_ticks, found.name, seen_ns, known is not None)

"""Stacks in logs, and whose they are.

A stack is that of the process whose lines have what stands before its lines. py-spy also says a
pid, which other lines may tie to a rank. If nothing does, or two things do, its rank is unknown.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, NamedTuple, TypeVar

from msgspec.structs import replace

from frtop_probe import wire
from frtop_tui.files.logs.prefixes import Head
from frtop_tui.files.logs.scan import LogLine
from frtop_tui.files.logs.stack_text import OpText, StackText
from frtop_tui.files.pyspy import MAIN
from frtop_tui.job.naming import printable

MAX_OPEN: Final = 4_096
"""Stacks that are being read at the same time."""
MAX_STACKS: Final = 16_384
MAX_FRAMES: Final = 1_000_000
"""Of all stacks together; later ones are left out."""
_HELPER: Final = re.compile(
    r"(?:^|/)torch/(?:utils/data/_utils/worker|_inductor/compile_worker/\w+)\.py$"
    r"|(?:^|/)multiprocessing/(?:resource_tracker|forkserver)\.py$"
)
"""Code that only processes beside a rank run."""
_TITLE: Final = re.compile(r"(?:sglang::scheduler|VLLM::Worker)_TP(?P<rank>\d{1,7})(?:_EP\d+)?\s*")
"""Titles of servers' processes, if there are neither pipelines nor replicas."""
_LOCAL: Final = re.compile(r" --local[-_]rank[= ](?P<rank>\d{1,7})(?: |$)")
_INSIDE: Final = re.compile(r"(?:local rank|process) .*")
"""What tells processes of one host apart."""
MAX_PIDS: Final = 131_072

P = TypeVar("P")


class LoggedStack(NamedTuple):
    """A stack; `line` begins it. `reason`: why the process itself printed it; "" if it did not."""

    threads: tuple[wire.ThreadStack, ...]
    line: LogLine
    wall_ns: int
    pid: int = 0
    reason: str = ""

    @property
    def has_frames(self) -> bool:
        return any(thread.frames for thread in self.threads)

    @property
    def is_of_helper(self) -> bool:
        return any(_HELPER.search(f.file) for thread in self.threads for f in thread.frames)

    def __str__(self) -> str:
        main = next((one for one in self.threads if one.name == MAIN), None)
        leaf = next((f for f in main.frames if not f.native), None) if main is not None else None
        if leaf is None:
            return str(self.line)
        return f"{self.line} in {printable(leaf.function)} ({printable(leaf.file)}:{leaf.line})"


@dataclass(slots=True)
class Reading(Generic[P]):
    """A stack that is being read: of which process, and what stands before its lines."""

    text: StackText
    process: P
    file: int
    part: int
    prefix: str
    line: LogLine
    wall_ns: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class TakenOp(Generic[P]):
    """Where a process issued the op that torch gave up, the innermost frame first."""

    process: P
    line: LogLine
    frames: tuple[wire.TraceFrame, ...]


@dataclass(frozen=True, slots=True)
class Taken(Generic[P]):
    """A stack that was read to its end."""

    process: P
    file: int
    part: int
    prefix: str
    stack: LoggedStack
    command: str


@dataclass(slots=True)
class StackLines(Generic[P]):
    """Reads the stacks in the lines of files, of processes `P`."""

    taken: list[Taken[P]] = field(default_factory=list)
    ops: list[TakenOp[P]] = field(default_factory=list)
    left_out: int = 0
    _open: dict[tuple[str, int | None], Reading[P]] = field(default_factory=dict)
    _pids: defaultdict[tuple[int, str, int], set[int]] = field(
        default_factory=lambda: defaultdict(set)
    )
    _frames: dict[wire.TraceFrame, wire.TraceFrame] = field(default_factory=dict)
    _size: int = 0

    @property
    def some_open(self) -> bool:
        return bool(self._open)

    def begin(self, one: Reading[P], rank: int | None) -> None:
        """The lines of a stack follow; `rank` stands before the first one."""
        keys = [(one.prefix, rank)]
        if isinstance(one.text, OpText):  # torch writes its rank before the first line only
            keys.append((one.prefix, None))
        for key in keys:
            self.end(key)
        if len(self._open) < MAX_OPEN:
            self._open |= dict.fromkeys(keys, one)

    def take(self, head: Head) -> bool:
        """Whether the line belongs to a stack that is being read; another line ends it."""
        key = (head.process, head.rank)
        one = self._open.get(key)
        if one is None:
            return False
        is_its = one.text.take(head.text)
        if not is_its or one.text.done:
            self.end(key)
        return is_its

    def end(self, key: tuple[str, int | None]) -> None:
        one = self._open.get(key)
        if one is not None:
            self._open = {k: other for k, other in self._open.items() if other is not one}
            self._add(one)

    def end_all(self) -> None:
        for key in [*self._open]:
            self.end(key)

    def _add(self, one: Reading[P]) -> None:
        if len(self.taken) + len(self.ops) >= MAX_STACKS or self._size > MAX_FRAMES:
            self.left_out += 1
            return
        if isinstance(one.text, OpText):
            frames = self._shared(one.text.frames)
            if frames:
                self.ops.append(TakenOp(one.process, one.line, frames))
            return
        threads = tuple(
            replace(thread, frames=self._shared(thread.frames)) for thread in one.text.threads
        )
        stack = LoggedStack(threads, one.line, one.wall_ns, one.text.pid, one.reason)
        if (stack.reason or stack.has_frames) and not stack.is_of_helper:
            place = one.process, one.file, one.part, one.prefix
            self.taken.append(Taken(*place, stack, one.text.command))

    def _shared(self, frames: Sequence[wire.TraceFrame]) -> tuple[wire.TraceFrame, ...]:
        """Stacks of a job show the same frames again and again."""
        self._size += len(frames) + 1
        return tuple(self._frames.setdefault(frame, frame) for frame in frames)

    # -- whose they are

    def note_pid(self, file: int, prefix: str, pid: int, rank: int) -> None:
        """A line says that a process is a rank; `prefix` stands before that line."""
        if len(self._pids) < MAX_PIDS:
            self._pids[file, _host(prefix), pid].add(rank)

    def with_ranks(
        self,
        rank_of: Callable[[int, P], int | None],
        local_ranks: Mapping[tuple[int, int], set[int]],
    ) -> Iterator[tuple[int | None, Taken[P]]]:
        """The stacks with their ranks; None if it is not known.

        `rank_of` knows the rank of a process in a file, `local_ranks` those of torchrun.
        """
        pids, titled = defaultdict[int, set[int]](set), defaultdict[tuple[int, int], set[int]](set)
        for one in self.taken:
            pids[id(one.process)].add(one.stack.pid)
            if (title := _TITLE.match(one.command)) is not None:
                titled[one.file, int(title["rank"])].add(one.stack.pid)
        for one in self.taken:
            known = self._pids.get((one.file, _host(one.prefix), one.stack.pid), set())
            title, local = _TITLE.match(one.command), _LOCAL.search(one.command)
            if not known and title is not None:
                claim = int(title["rank"])
                known = {claim} if len(titled[one.file, claim]) == 1 else {-1, claim}
            if not known and local is not None:
                known = local_ranks.get((one.file, int(local["rank"])), set())
            if not known and len(pids[id(one.process)] - {0}) <= 1:
                rank = rank_of(one.file, one.process)
                known = {rank} if rank is not None else set()
            yield (min(known) if len(known) == 1 else None), one


def _host(prefix: str) -> str:
    return _INSIDE.sub("", prefix)

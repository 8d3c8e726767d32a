"""Who wrote a line: what launchers, schedulers and torch put before it.

A process is known by what stands before all its lines. Its rank is known if torch, or a launcher
with one process per rank, says it there.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Final, NamedTuple

_MOST: Final = 8
"""Prefixes before one line: `[pod/a/b] 2025-11-29T12:00:00Z stderr F 3: [default3]:[rank3]:`."""
_STAMP: Final = re.compile(
    r"\[?(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?"
    r"(Z|[+-]\d\d:?\d\d)?((?: [A-Z_]{2,8}\d{1,4}){1,6}(?=\]))?\]?(?:\s*[-|]\s*|\s)?"
)
_GLOG: Final = re.compile(
    r"\[?[EWIF](\d{1,2})(\d\d) (\d\d):(\d\d):(\d\d)\.(\d{1,9})(?: +(\d{1,10}))?"
    r" [\w./-]+:\d+\] ?"
)
_RANK: Final = re.compile(r"\[rank(\d{1,7})\]:( ?)")
_OTHER_RANKS: Final = (
    re.compile(r"\[\d+,(\d{1,7})\]<std(?:err|out)>:"),  # Open MPI 4
    re.compile(r"\[[\w.@-]{1,64}@\d+,(\d{1,7})\]<std(?:err|out)>: ?"),  # Open MPI 5
    re.compile(r"\[rank: (\d{1,7})\] ?"),  # Lightning
)
_PROCESS: Final = (
    ("pod", re.compile(r"\[pod/([\w./-]{1,256})\] ")),
    ("service", re.compile(r"([\w.-]{1,64}) {1,8}\| ")),
    ("task", re.compile(r"\s{0,6}(\d{1,7}): ")),
    ("local rank", re.compile(r"\[[A-Za-z_]\w{0,63}?(\d{1,4})\]:")),
    ("process", re.compile(r"\((?:[\w.<>= -]{1,64} )?(pid=\d+(?:, ip=[\w.:]+)?)\) ")),
)
"""What tells processes apart, though not which rank each is."""
_OTHERS: Final = re.compile(r"std(?:out|err) [FP] |\[[EWIF] [\w./-]+:\d+\] ?")
"""In files of Kubernetes after the time; of torch up to 2.3 before its message."""
_VLLM: Final = re.compile(
    r"(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) (\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?()"
    r" \[[\w./-]+:\d+\] ?"
)
_CLAIM: Final = re.compile(
    r"\((?:Worker_TP|VllmWorker rank=|VllmWorker-)(\d{1,7})(?:_EP\d{1,4})? pid="
    r"| TP(\d{1,4})(?: EP\d{1,4})?$"
)
"""Names of servers' processes that say a rank, if there are neither pipelines nor replicas."""


class Head(NamedTuple):
    """What stands before a line; `wall_ns` is 0 if it has no time.

    `hooked`: torch's hook for uncaught exceptions wrote it. `local_rank` is torchrun's, -1: none.
    `task` is a scheduler's, or of whatever numbers lines like it; -1: none.
    `claim` is the rank within its server by the name of a process, -1: none.
    `writer` is the pid or thread that torch's agent and glog write.
    """

    process: str
    rank: int | None
    wall_ns: int
    text: str
    hooked: bool = False
    local_rank: int = -1
    task: int = -1
    claim: int = -1
    writer: str = ""


def tagged_once(line: str) -> str:
    """A line of Open MPI 4, which repeats its tag within lines that were written in pieces."""
    tag = _OTHER_RANKS[0].match(line)
    return line if tag is None else tag[0] + line.replace(tag[0], "")


def head_of(line: str, year: int) -> Head:
    """Takes a line apart. `year` is that of the log: glog's times have none."""
    head, at = Head("", None, 0, line), 0
    for _ in range(_MOST):
        found, head = _prefix(line, at, head, year)
        if found is not None and found.end() > at:
            at = found.end()
        elif head.rank is None and (inside := _RANK.search(line, at)) is not None:
            at = inside.start()  # after a progress bar that has no line end
        else:
            break
    return head._replace(text=line[at:])


def _prefix(line: str, at: int, head: Head, year: int) -> tuple[re.Match[str] | None, Head]:
    """The prefix that begins at `at`, if any, and `head` with what it says."""
    if found := _RANK.match(line, at):
        return found, head._replace(rank=int(found[1]), hooked=bool(found[2]))
    if found := next(filter(None, (one.match(line, at) for one in _OTHER_RANKS)), None):
        return found, head._replace(rank=int(found[1]) if head.rank is None else head.rank)
    if found := _GLOG.match(line, at) or _VLLM.match(line, at):
        wall_ns = wall_ns_of((str(year), *found.groups()[:6])) or head.wall_ns
        return found, head._replace(wall_ns=wall_ns, hooked=False, writer=found[7] or "")
    if found := _STAMP.match(line, at):
        head = head._replace(wall_ns=wall_ns_of(found.groups()[:7]) or head.wall_ns)
        return found, _named(head, f"process{found[9]} ", found[9]) if found[9] else head
    for kind, pattern in _PROCESS:
        if found := pattern.match(line, at):
            local_rank = int(found[1]) if kind == "local rank" else head.local_rank
            task = int(found[1]) if kind == "task" else head.task
            head = head._replace(local_rank=local_rank, task=task)
            return found, _named(head, f"{kind} {found[1]} ", found[0])
    return _OTHERS.match(line, at), head


def _named(head: Head, process: str, name: str) -> Head:
    """`head` with what a prefix says of its process, whose `name` may have a rank."""
    claim = _CLAIM.match(name)
    said = int(claim[1] or claim[2]) if claim is not None else head.claim
    return head._replace(process=f"{head.process}{process}", claim=said)


def wall_ns_of(parts: Sequence[str | None]) -> int:
    """A time from year, month, day, hour, minute, second and perhaps a fraction; 0: no such time.

    As a time of this machine's zone: it is shown as it was written.
    """
    numbers = [int(part or 0) for part in parts[:6]]
    fraction = (parts[6] if len(parts) > 6 else None) or "0"
    try:
        datetime(*numbers, tzinfo=timezone.utc)  # type: ignore[arg-type,misc]
        seconds = time.mktime((*numbers, 0, 0, -1))  # type: ignore[arg-type]
    except (ValueError, OverflowError):
        return 0
    return int(seconds) * 1_000_000_000 + int(fraction.ljust(9, "0")[:9])

"""Answers of NCCL's RAS that somebody saved: `ncclras -f json > ncclras.json`, or its text.

They say how many ops of each kind each rank has launched, and which ranks RAS does not reach. frtop
shows that beside the verdict, and no verdict uses it: one answer is one look at a job that may be
running, a launched op may not be complete, and RAS does not count sends, receives and replays of
CUDA graphs. frtop never queries RAS itself: queries have ended jobs (docs/nccl.md).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from frtop_probe import wire
from frtop_probe.ring.rank_ranges import MAX_RANKS
from frtop_tui.diagnosis.engine import Engine
from frtop_tui.diagnosis.model import Frame
from frtop_tui.errors import Unreadable
from frtop_tui.files.bounded_read import read_bounded, read_head
from frtop_tui.job.model import BaseFrame, Coverage, CoverageNote, ObservedFrame, Recorded
from frtop_tui.job.naming import listed, printable
from frtop_tui.job.units import counted, local_time

KIND: Final = "answers of NCCL's RAS"
OVER: Final = "these are answers from files: there is no job to ask"
MAX_SIZE: Final = 32 * 1024 * 1024
MAX_LINES: Final = 20_000
MAX_SAID: Final = 8
"""How many communicators, or problems of a text, to report; frtop counts the others."""
_NAME: Final = re.compile(r"ncclras|\.ras\.(json|txt)$")
_HEAD: Final = 4096
_JSON: Final = re.compile(rb'\s*\{[^\x00]*"nccl_version"')
_TEXT: Final = re.compile(rb"NCCL version \d[^\x00]*\n[^\x00]*Job summary\s*\n=+")
_VERSION: Final = re.compile(r"NCCL version (\d[^\s+]*)")
_PROBLEM: Final = re.compile(r"(?:#\d+-\d+ \(([0-9a-f]{1,16})\) )?([A-Z]+)")
_NEXT: Final = "save the whole answer: ncclras -f json > ncclras.json"
_IN_PROGRESS: Final = 7
"""ncclInProgress of ncclResult_t."""
NOT_COVERED: Final = (
    "counts are of ops launched on the host, not completed, and not of sends, receives and CUDA"
    " graphs; no verdict uses them"
)

_Text = Annotated[str, Meta(max_length=128)]
_Small = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
_Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
_Place = tuple[str, int]
"""A process as RAS names it: address and pid."""


class _Status(Struct, frozen=True):
    """The status of a rank. `init_state` and `async_error` are ncclResult_t."""

    init_state: _Small = 0
    async_error: _Small = 0
    finalize_called: bool = False
    destroy_flag: bool = False
    abort_flag: bool = False
    unresponsive: bool = False
    considered_dead: bool = False


class _Rank(Struct, frozen=True):
    """`rank` is its number in the communicator."""

    rank: _Small
    host: _Text = ""
    pid: _Small = 0
    status: _Status = _Status()
    collective_counts: dict[_Text, _Count] = {}


class _Communicator(Struct, frozen=True):
    hash: _Text
    size: _Small
    ranks: list[_Rank] = []
    missing_ranks: list[_Rank] = []

    @property
    def listed(self) -> list[_Rank]:
        return [*self.ranks, *self.missing_ranks]

    @property
    def is_sound(self) -> bool:
        numbers = [one.rank for one in self.listed]
        inside = all(0 <= number < self.size for number in numbers)
        return 0 < self.size <= MAX_RANKS and inside and len(set(numbers)) == len(numbers)


class _Answer(Struct, frozen=True):
    communicators: list[_Communicator]
    nccl_version: _Text = ""
    timestamp: _Text = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer: `communicators` from JSON, or `problems` from text (before NCCL 2.28.7)."""

    path: Path
    written_ns: int
    version: str
    when: str
    communicators: Sequence[_Communicator] = ()
    problems: Sequence[str] = ()
    contradictory: int = 0


_answers = msgspec.json.Decoder(_Answer)


def has_usual_name(path: Path) -> bool:
    """Whether a file in a folder has a usual name: `ncclras*`, `*.ras.json`, `*.ras.txt`."""
    return _NAME.search(path.name) is not None


def is_answer(path: Path) -> bool:
    """Whether a file begins like an answer.

    Raises:
        OSError: it cannot be read.
    """
    head = read_head(path, _HEAD)
    return _JSON.match(head) is not None or _TEXT.match(head) is not None


def read(path: Path) -> Answer:
    """Reads an answer that was saved to a file.

    Raises:
        Unreadable: it cannot be read, is too large, damaged, or cut off.
    """
    data = read_bounded(path, lambda _: MAX_SIZE, "an answer of NCCL's RAS", _NEXT)
    written = path.stat().st_mtime_ns
    when = local_time(written)
    if data.lstrip().startswith(b"{"):
        return _of_json(path, data, written, when)
    return _of_text(path, data, written, when)


def _of_json(path: Path, data: bytes, written: int, when: str) -> Answer:
    try:
        found = _answers.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        text = f"{path} is damaged, or not an answer of NCCL's RAS ({str(error)[:120]})"
        raise Unreadable(text, _NEXT) from error
    sound = [one for one in found.communicators if one.is_sound]
    left_out = len(found.communicators) - len(sound)
    return Answer(
        path, written, found.nccl_version, found.timestamp or when, sound, contradictory=left_out
    )


def _of_text(path: Path, data: bytes, written: int, when: str) -> Answer:
    lines = data.decode("utf-8", "replace").splitlines()[:MAX_LINES]
    if "Warnings" not in lines:
        raise Unreadable(f"{path} ends before the last section of an answer", _NEXT)
    if not (begin := _VERSION.match(lines[0])):
        raise Unreadable(f"{path} does not begin like an answer of NCCL's RAS", _NEXT)
    return Answer(path, written, begin[1], when, problems=tuple(_problems(lines)))


def _problems(lines: Sequence[str]) -> Iterator[str]:
    """Each problem in the sections Errors and Warnings as one sentence, in RAS's words."""
    begun, body = "", list[str]()
    inside = False
    for line in [*lines, ""]:
        if begun and not line.strip():
            yield f"{begun}: {listed(body, 6, '; ')}"
            begun, body = "", []
        elif begun:
            body.append(line.strip())
        elif line == "Errors":
            inside = True
        elif inside and (found := _PROBLEM.fullmatch(line)):
            begun = f"{found[2]} in communicator {found[1]}" if found[1] else found[2]


def said_of(answer: Answer, frame: BaseFrame) -> list[str]:
    """What an answer says, as notes. They name the ranks and groups that the frame knows."""
    ranks = _ranks_by_place(frame, answer.communicators)
    of_each = (_said(one, frame, ranks) for one in answer.communicators)
    said = [*answer.problems, *filter(None, of_each)]
    more = [f"and {counted(len(said) - MAX_SAID, 'more problem')}"] if len(said) > MAX_SAID else []
    if answer.contradictory:
        more.append(f"{counted(answer.contradictory, 'communicator')} left out: contradictory")
    if said:
        head = f"{counted(len(said), 'problem')}; {NOT_COVERED}"
    elif answer.communicators:
        known = counted(len(answer.communicators), "communicator")
        head = (
            f"no rank of {known} is missing or has launched less,"
            " which does not mean that all is well"
        )
    else:
        head = "it lists no problem, which does not mean that all is well"
    name = f"{answer.path.name} (NCCL's RAS {answer.version}, {answer.when})"
    return [printable(f"{name}: {text}") for text in (head, *said[:MAX_SAID], *more)]


def frame_of(answers: Sequence[Answer]) -> Frame:
    """A frame of answers alone: it repeats what they say, and concludes nothing."""
    newest = max(answers, key=lambda one: one.written_ns)
    folder = newest.path.absolute().parent
    world = max((one.size for answer in answers for one in answer.communicators), default=0)
    note = CoverageNote(
        "answers of NCCL's RAS alone conclude nothing: add dumps or stacks of ranks"
    )
    observed = ObservedFrame(
        now_ns=newest.written_ns,
        wall_ns=newest.written_ns,
        health="undecided",
        job=wire.Job("", 0, world, name=printable(folder.name or str(folder))),
        coverage=Coverage(world, 0, tuple(range(world)), notes=(note,)),
        recorded=Recorded(KIND, str(folder), newest.written_ns),
        read_only=OVER,
    )
    return Engine(explain=True).judge(observed).frame


def _said(one: _Communicator, frame: BaseFrame, ranks: Mapping[_Place, int]) -> str:
    """What is out of the ordinary about a communicator; "" for nothing."""
    known = {rank.rank: ranks.get((rank.host, rank.pid)) for rank in one.listed}

    def name(rank: _Rank) -> str:
        number = known[rank.rank]
        process = f"process {rank.pid or 'unknown'} on {rank.host or 'an unknown host'}"
        its = f"rank {rank.rank} of it" if number is None else f"rank {number}"
        return f"{its} ({process})"

    found = []
    for kind in dict.fromkeys(kind for rank in one.ranks for kind in rank.collective_counts):
        most = max(rank.collective_counts.get(kind, 0) for rank in one.ranks)
        fewer = [
            f"{name(rank)} {rank.collective_counts.get(kind, 0):,}"
            for rank in one.ranks
            if rank.collective_counts.get(kind, 0) < most
        ]
        if fewer:
            found.append(f"{kind} launched {most:,} times, by fewer: {listed(fewer)}")
    found += [f"{name(rank)} is {_missing(rank.status)}" for rank in one.missing_ranks]
    found += [f"{name(rank)} is {said}" for rank in one.ranks if (said := _state(rank.status))]
    unlisted = one.size - len(one.listed)
    if unlisted:
        found.append(f"not in the answer: {counted(unlisted, 'rank')}")
    if not found:
        return ""
    groups = [
        group.label
        for group in frame.groups
        if "ccl" in group.backend
        and len(known) == one.size
        and group.members == tuple(known[number] for number in range(one.size))
    ]
    whose = f", {listed(groups, 4, ' or ')}" if groups else ""
    return f"communicator {one.hash}, {counted(one.size, 'rank')}{whose}: {listed(found, 12, '; ')}"


def _missing(status: _Status) -> str:
    if status.considered_dead:
        return "considered dead by RAS"
    return "unresponsive: RAS does not reach its process" if status.unresponsive else "missing"


def _state(status: _Status) -> str:
    if status.init_state == _IN_PROGRESS:
        return "still making its communicator"
    if status.init_state:
        return f"without a communicator: making it failed (error {status.init_state})"
    if status.async_error not in (0, _IN_PROGRESS):
        return f"in an asynchronous error ({status.async_error})"
    if status.abort_flag:
        return "aborted"
    return "leaving it" if status.finalize_called or status.destroy_flag else ""


def _ranks_by_place(frame: BaseFrame, communicators: Sequence[_Communicator]) -> dict[_Place, int]:
    """The job's rank of each process that RAS names, if it is certain.

    RAS knows addresses and pids, torch knows ranks. If pids repeat between hosts, the address
    decides.
    """
    pids: defaultdict[str, set[int]] = defaultdict(set)
    for one in communicators:
        for rank in one.listed:
            if rank.host and rank.pid > 0:
                pids[rank.host].add(rank.pid)
    ranks: defaultdict[str, dict[int, int]] = defaultdict(dict)
    addresses: defaultdict[str, set[str]] = defaultdict(set)
    for view in frame.ranks.values():
        ranks[view.host][view.identity.pid] = view.rank
        if view.snapshot is not None:
            addresses[view.host].update(view.snapshot.addresses)
    found: dict[_Place, int] = {}
    for address, wanted in pids.items():
        fitting = [host for host, known in ranks.items() if wanted <= known.keys()]
        chosen = [host for host in fitting if address in addresses[host]] or fitting
        if len(chosen) == 1:
            found |= {(address, pid): ranks[chosen[0]][pid] for pid in wanted}
    return found

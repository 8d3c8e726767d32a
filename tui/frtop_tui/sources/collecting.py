"""Gathers everything that can be known of a job now, for a capture.

First looks with stacks, as they show a moment; then the histories, which keep; last the
tensors, for which the ranks themselves are asked. Each host has one question of ours at a
time and its ranks come one after the other; hosts are asked side by side, but not all at
once. What did not come in time is named.
"""

from __future__ import annotations

import os
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from frtop_probe import wire
from frtop_tui.diagnosis.look_requests import children_in_question
from frtop_tui.diagnosis.model import Frame, JudgedRank
from frtop_tui.export import capture
from frtop_tui.export.output_path import write_unused
from frtop_tui.job.model import Writing
from frtop_tui.job.naming import folded, job_key
from frtop_tui.sources.errands import Errands
from frtop_tui.sources.scribe import Scribe

DEADLINE_NS: Final = 20_000_000_000
HOSTS_AT_ONCE: Final = 32
"""So many answers at most come in together: each is decoded between two updates."""
RANKS_PER_LOOK: Final = 8
OPS_PER_LOOK: Final = 32
ROWS: Final = 1_000_000
"""Of all histories together, in ops: what we hold at once, at some 300 bytes each."""
_DEAF: Final = ("silent", "stopped", "dead", "done", "unheard")
"""Ranks that could not answer for themselves; asking each of them would take seconds."""

Kind = str  # "stacks", "history", "tensors"


@dataclass(frozen=True, slots=True)
class _Step:
    """One question to one host, and whom it is about."""

    kind: Kind
    ranks: tuple[int, ...]
    question: wire.Request


_SILENCE: Final = {
    "none": "nothing pending that has tensors",
    "missing": "they answer nobody: their recorder is older, or could not start, or the file of"
    " their socket was deleted",
}
"""What a word of an answer means of several ranks at once."""


class Collecting:
    """One capture, from the wish to the file. Belongs to the source's thread."""

    def __init__(
        self,
        errands: Errands,
        scribe: Scribe,
        frame: Frame,
        *,
        path: Path,
        automatic: bool,
        now: int,
        write: Callable[..., int] = capture.write,
    ) -> None:
        self._errands = errands
        self._scribe = scribe
        self._write = write
        self._path = path
        self._over = False
        self._job = frame.job
        self._until = now + DEADLINE_NS
        self._histories: dict[int, wire.HistoryResponse] = {}
        self._missing: dict[tuple[Kind, str], set[int]] = defaultdict(set)
        self._steps: dict[str, deque[_Step]] = {}  # by host
        self._agents: dict[str, int] = {}  # by host
        self._left = dict.fromkeys(frame.ranks, 0)  # rank -> its steps that are still to come
        self._under_way: dict[str, tuple[int, _Step]] = {}
        self._limit = 0
        self._gathered_ns = 0  # when all was there; the next frame has it in it
        self.writing = Writing(
            "capture",
            "collecting",
            str(path),
            total=len(frame.ranks),
            automatic=automatic,
            at_ns=now,
        )
        if not frame.ranks:
            self._fail("no rank of a job is known yet: there is nothing to capture", now)
            return
        scribe.do(self._look, _nothing, _nothing)
        self._plan(frame)

    @property
    def over(self) -> bool:
        return self.writing.state in ("written", "failed")

    def refuse(self, path: Path) -> None:
        """Another wish while this one is under way."""
        self.writing = replace(self.writing, problem=f"already capturing: {path} was not begun")

    def turn(self, frame: Frame, now: int) -> None:
        """Asks what can be asked now; writes `frame` when it has everything in it."""
        if self.writing.state != "collecting":
            return
        if not same_job(frame.job, self._job):
            self._give_up("another job is shown")
            self._fail("another job is shown by now: choose the first one again and repeat", now)
            return
        if now >= self._until:
            self._give_up(f"no answer in {DEADLINE_NS / 1e9:.0f} s")
        else:
            self._ask(now)
        done = sum(left <= 0 for left in self._left.values())
        if done != self.writing.done:
            self.writing = replace(self.writing, done=done)
        if self._steps or self._under_way:
            return
        self._gathered_ns = self._gathered_ns or now
        if frame.now_ns >= self._gathered_ns:
            self._finish(frame, now)

    def _look(self) -> None:
        """In the scribe's thread: what is there now is replaced, what appears later is not."""
        self._over = os.path.lexists(self._path)

    def _plan(self, frame: Frame) -> None:
        hosts: dict[str, list[JudgedRank]] = defaultdict(list)
        for view in frame.ranks.values():
            if view.state == "unheard":
                self._missing["stacks and history", f"{view.host} is not heard"].add(view.rank)
            else:
                hosts[view.host].append(view)
        self._limit = max(1, ROWS // len(frame.ranks))
        may_act = {host.name: host.may_act and not frame.read_only for host in frame.hosts}
        for name, views in hosts.items():
            steps = [*_looks(views), *_histories(views, self._limit)]
            if may_act.get(name, True):
                steps += self._tensors(views)
            elif pending := {view.rank for view in views if view.pending}:
                why = frame.read_only or f"our key may only read on {name}"
                self._missing["tensors", why] |= pending
            self._steps[name] = deque(steps)
            self._agents[name] = self._errands.agent(name)
            for step in steps:
                for rank in step.ranks:
                    self._left[rank] += 1

    def _tensors(self, views: Iterable[JudgedRank]) -> list[_Step]:
        steps = []
        for view in views:
            if not view.pending:
                continue
            if view.state in _DEAF:
                self._missing["tensors", f"{view.state}, cannot answer"].add(view.rank)
            else:
                steps.append(_Step("tensors", (view.rank,), wire.TensorsRequest(0, view.key)))
        return steps

    def _ask(self, now: int) -> None:
        for host, steps in list(self._steps.items()):
            if len(self._under_way) >= HOSTS_AT_ONCE:
                return
            if host in self._under_way:
                continue
            step = steps.popleft()
            if not steps:
                del self._steps[host]
            then = partial(self._answered, host, step)
            patience = max(1, self._until - now)
            number = self._errands.ask(
                host, step.question, then, now, patience, agent=self._agents[host]
            )
            self._under_way[host] = number, step

    def _answered(self, host: str, step: _Step, answer: wire.Response, _now: int) -> None:
        """Looks and tensors are in the job's state already; histories are kept here."""
        self._under_way.pop(host, None)
        if isinstance(answer, wire.HistoryResponse):
            if len(answer.history.rows) > self._limit:
                self._missing["history", "more was told than asked for"].add(step.ranks[0])
            else:
                self._histories[step.ranks[0]] = answer
            if len(answer.history.rows) >= self._limit:
                few = f"only the newest {self._limit:,} ops of each were asked for"
                self._missing["whole history", few].add(step.ranks[0])
        elif isinstance(answer, wire.SnapshotResponse):
            self._note_dumps(step, answer)
        elif isinstance(answer, wire.TensorsResponse):
            if answer.error:
                why = _SILENCE.get(answer.error) or answer.help or answer.error
                self._missing["tensors", why].update(step.ranks)
        else:
            why = answer.text if isinstance(answer, wire.Error) else "answered something else"
            self._missing[step.kind, why].update(step.ranks)
        for rank in step.ranks:
            self._left[rank] -= 1

    def _note_dumps(self, step: _Step, answer: wire.SnapshotResponse) -> None:
        assert isinstance(step.question, wire.SnapshotRequest)
        ranks = dict(zip(step.question.keys, step.ranks, strict=True))
        for look in answer.snapshots:
            failed = next((dump for dump in look.dumps if dump.error and not dump.threads), None)
            if failed is not None and look.key in ranks:
                self._missing["stacks", failed.help or failed.error].add(ranks[look.key])

    def _give_up(self, why: str) -> None:
        """Names what is still owed, and goes without it."""
        for number, step in self._under_way.values():
            self._errands.drop(number)
            self._missing[step.kind, why].update(step.ranks)
        for steps in self._steps.values():
            for step in steps:
                self._missing[step.kind, why].update(step.ranks)
        self._under_way.clear()
        self._steps.clear()

    def _finish(self, frame: Frame, now: int) -> None:
        missing = [
            f"no {kind} of {folded(ranks)}: {why}" for (kind, why), ranks in self._missing.items()
        ]
        total = self.writing.total
        self.writing = replace(self.writing, state="writing", done=total, at_ns=now)
        histories = self._histories

        def write(path: Path) -> int:
            over = self._over and path == self._path
            return self._write(path, frame, histories, missing, over=over)

        task = partial(write_unused, self._path, write)
        self._scribe.do(task, partial(self._written, "; ".join(missing)), self._fail)

    def _written(self, problem: str, put: tuple[Path, int], now: int) -> None:
        self._histories = {}
        path, size = put
        self.writing = replace(
            self.writing, state="written", path=str(path), size=size, problem=problem, at_ns=now
        )

    def _fail(self, problem: str, now: int) -> None:
        self._histories = {}
        self.writing = replace(self.writing, state="failed", problem=problem, at_ns=now)


def _nothing(_result: object, _now: int) -> None:
    """Nobody needs to know."""


def same_job(job: wire.Job | None, other: wire.Job | None) -> bool:
    """Whether it is still the same job; its nonce may have become known meanwhile."""
    if job is None or other is None:
        return job is other
    return job_key(job)[:-1] == job_key(other)[:-1] and (
        job.nonce == other.nonce or not (job.nonce and other.nonce)
    )


def _looks(views: list[JudgedRank]) -> list[_Step]:
    steps = []
    living = [view for view in views if view.exit_info is None]
    for start in range(0, len(living), RANKS_PER_LOOK):
        some = living[start : start + RANKS_PER_LOOK]
        question = wire.SnapshotRequest(
            0,
            keys=tuple(view.key for view in some),
            stacks=True,
            ops=OPS_PER_LOOK,
            pids=tuple(pid for view in some for pid in children_in_question(view)),
        )
        steps.append(_Step("stacks", tuple(view.rank for view in some), question))
    return steps


def _histories(views: list[JudgedRank], limit: int) -> list[_Step]:
    return [
        _Step("history", (view.rank,), wire.HistoryRequest(0, view.key, limit)) for view in views
    ]

"""Orders torch's profiler from ranks, follows them, fetches their files, and has them merged.

A rank withdraws an order by itself when nobody asks for it any more: an operator that is gone
leaves nothing on. Of each rank one piece of a file is under way at a time, of `AT_ONCE` ranks.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from frtop_probe import wire
from frtop_probe.ring.profile_files import FILES
from frtop_tui.diagnosis.model import Frame, JudgedRank
from frtop_tui.export.merged_profile import Contents, write_profiles
from frtop_tui.export.torch_lanes import RankTrace
from frtop_tui.job.model import Problem
from frtop_tui.job.profiles import (
    MOST_RANKS,
    ProfileOptions,
    ProfileProgress,
    RankProfile,
    RankStage,
)
from frtop_tui.sources.commands import why_not_ask
from frtop_tui.sources.file_worker import FileWorker
from frtop_tui.sources.profile_pieces import MOST_BYTES, PIECE, FetchedFiles, inflated
from frtop_tui.sources.request_tracker import RequestTracker

POLL_NS: Final = 1_000_000_000
SILENT_POLL_NS: Final = 5_000_000_000
"""Of a rank that did not answer: its agent waits nearly two seconds for it, and for few at once."""
AT_ONCE: Final = 4
PIECE_NS: Final = 60_000_000_000
"""How long a piece may be under way: the rank keeps its file meanwhile."""
MOST_OPS: Final = 5000
"""Of a rank's own ops, that stand beside its profile."""
ANSWER_NS: Final = 10_000_000_000
"""After the time to wait: a rank says by itself that it reached no step, if it can."""
GRACE_NS: Final = 150_000_000_000
"""After that: the longest profile by steps, and writing it."""
_STAGES: Final[dict[str, RankStage]] = {
    "waiting": "waiting",
    "running": "running",
    "saving": "saving",
}
_LATER: Final = frozenset({"silent", "deadline", "stopped", "lost"})
"""Reasons why a rank does not answer now; it may later."""


@dataclass(slots=True)
class _Rank:
    view: JudgedRank
    agent: int
    progress: RankProfile
    ask_ns: int = 0
    """When it is to be asked again."""
    under_way: int = 0
    piece: int = 0
    """Number of the request for a piece of a file; 0 when none is under way."""
    unwritten: bool = False
    clocks: tuple[tuple[int, int], ...] = ()
    files: list[wire.ProfileFile] = field(default_factory=list)
    offset: int = 0
    history: wire.HistoryResponse | None = None

    @property
    def over(self) -> bool:
        return self.progress.stage in ("done", "failed")


class ProfileOrders:
    """Belongs to the source's thread. `progress` is replaced, never changed."""

    def __init__(self, tracker: RequestTracker) -> None:
        self._tracker = tracker
        self._files = FileWorker()
        self._ranks: dict[int, _Rank] = {}
        self._token = ""
        self._fetched: FetchedFiles | None = None
        self._begin_until = self._until = 0
        """Until when a rank must have begun, and must be done."""
        self._frame: Frame | None = None
        self.progress: ProfileProgress | None = None

    @property
    def under_way(self) -> bool:
        return self.progress is not None and self.progress.state in ("running", "merging")

    def order(
        self,
        frame: Frame | None,
        ranks: Sequence[int],
        options: ProfileOptions,
        path: Path,
        now: int,
    ) -> None:
        """Gives an order, unless one is under way."""
        if self.under_way or frame is None:
            return
        self._token, self._ranks, self._frame = secrets.token_hex(8), {}, frame
        chosen = [frame.ranks[rank] for rank in dict.fromkeys(ranks) if rank in frame.ranks]
        states = []
        for view in chosen[:MOST_RANKS]:
            progress = RankProfile(view.rank, view.host)
            if why := _why_not(frame, view):
                progress = replace(progress, stage="failed", text=why)
            states.append(progress)
            self._ranks[view.rank] = _Rank(view, self._tracker.agent(view.host), progress)
        self.progress = ProfileProgress(options, tuple(states), str(path), since_ns=now)
        self._begin_until = now + int(options.wait_s * 1e9) + ANSWER_NS
        self._until = self._begin_until + GRACE_NS
        if len(chosen) > MOST_RANKS:
            self._end("failed", Problem(f"{len(chosen)} ranks are too many", "mark at most 64"))
            self._ranks.clear()
            return
        if not os.access(path.parent, os.W_OK | os.X_OK):
            self._end("failed", Problem(f"{path.parent} is not writable", "name another folder"))
            return
        self._fetched = FetchedFiles(path.parent)
        for one in self._ranks.values():
            if not one.over:
                self._ask(one, "begin", now)

    def withdraw(self, now: int, *, keep: bool = False) -> None:
        """Ends what is under way, in the ranks as well.

        With `keep` what is complete is written. Ranks whose files are on their way are waited for;
        asked once more, only those that are here count.
        """
        if self.progress is None or self.progress.state != "running":
            return
        if keep and any(one.progress.complete for one in self._ranks.values()):
            self._leave_out(now)
            return
        self._withdraw_all(now)
        self._end("withdrawn", Problem("withdrawn: nothing stays on in the ranks"))

    def _leave_out(self, now: int) -> None:
        missing = [one for one in self._ranks.values() if not one.over]
        late = [one for one in missing if not one.progress.complete]
        if not late and any(one.progress.stage == "done" for one in self._ranks.values()):
            late = missing
        for one in late:
            why = f"{one.progress.text}: " if one.progress.text else ""
            self._tracker.drop(one.piece)
            self._fail(one, f"{why}the order was ended before it was done", now)

    def _withdraw_all(self, now: int) -> None:
        for one in self._ranks.values():
            self._tracker.drop(one.under_way)
            self._tracker.drop(one.piece)
            if one.progress.stage not in ("done", "failed"):
                self._ask(one, "withdraw", now)

    def update(self, frame: Frame | None, now: int) -> None:
        """Asks how far ranks are, and for pieces of their files."""
        self._files.update(now)
        progress = self.progress
        if progress is None or progress.state != "running":
            return
        self._frame = frame or self._frame
        fetching = sum(one.piece > 0 or one.unwritten for one in self._ranks.values())
        for one in self._ranks.values():
            if one.over:
                continue
            if now > (self._until if one.progress.first else self._begin_until):
                text = one.progress.text or "it did not come to an end in time"
                self._fail(one, f"{text}: the order is withdrawn", now)
                continue
            if not one.under_way and now >= one.ask_ns:
                # One that was not answered may never have been read: the rank takes it only once.
                self._ask(one, "begin" if one.progress.stage == "ordered" else "status", now)
            idle = bool(one.files) and not (one.piece or one.unwritten)
            if one.progress.stage == "fetching" and idle and fetching < AT_ONCE:
                fetching += 1
                self._fetch(one, now)
        states = tuple(one.progress for one in self._ranks.values())
        if states != progress.ranks:
            self.progress = progress = replace(progress, ranks=states)
        if all(one.over for one in self._ranks.values()):
            self._merge(progress, now)

    # -- one rank

    def _ask(self, one: _Rank, action: str, now: int) -> None:
        assert self.progress is not None
        options = self.progress.options
        request = wire.ProfileRequest(
            id=0,
            key=one.view.key,
            action=action,
            order=self._token,
            steps=options.steps,
            seconds=options.seconds,
            wait_s=options.wait_s,
            shapes=options.shapes,
            stacks=options.stacks,
            memory=options.memory,
            devices=options.devices,
            execution=options.execution,
        )
        one.ask_ns = now + POLL_NS
        received = partial(self._answered, one, action)
        one.under_way = self._tracker.request(
            one.view.host, request, received, now, agent=one.agent
        )

    def _is_awaited(self, one: _Rank) -> bool:
        """Whether it belongs to the order of now, which waits for it."""
        return self.under_way and self._ranks.get(one.view.rank) is one and not one.over

    def _answered(self, one: _Rank, action: str, response: wire.Response, now: int) -> None:
        one.under_way = 0
        if action == "withdraw" or not self._is_awaited(one):
            return
        if not isinstance(response, wire.ProfileResponse):
            text = (
                response.text if isinstance(response, wire.Error) else "an answer of another kind"
            )
            reason = response.reason if isinstance(response, wire.Error) else ""
            self._note(one, text, later=reason in _LATER, now=now)
            return
        if response.error:
            later = response.error in _LATER and response.stage != "over"
            self._note(one, response.help, later=later, now=now)
            return
        one.progress = replace(
            one.progress,
            first=response.first,
            last=response.last,
            lasted_ns=response.lasted_ns,
            stood_still_ns=response.stood_still_ns,
            text=response.help,
        )
        if response.stage == "ready" and one.progress.stage != "fetching":
            self._take_files(one, response, now)
        elif response.stage in _STAGES and one.progress.stage != "fetching":
            one.progress = replace(one.progress, stage=_STAGES[response.stage])

    def _take_files(self, one: _Rank, response: wire.ProfileResponse, now: int) -> None:
        one.clocks = response.clocks
        one.files = [file for file in response.files if file.size > 0 and file.name in FILES]
        total = sum(file.size for file in one.files)
        if len(one.clocks) != 2 or all(file.name != "trace" for file in one.files):
            self._fail(one, "torch wrote no trace", now)
        elif any(file.size > MOST_BYTES for file in one.files):
            self._fail(one, f"its files have {total / 1e9:.1f} GB: profile fewer steps", now)
        else:
            one.progress = replace(one.progress, stage="fetching", total=total)

    def _note(self, one: _Rank, text: str, *, later: bool, now: int) -> None:
        if later:
            one.ask_ns = now + SILENT_POLL_NS
            one.progress = replace(one.progress, text=text)
        elif one.progress.stage != "fetching":  # then its files are there without it
            self._fail(one, text, now)

    def _fail(self, one: _Rank, text: str, now: int) -> None:
        one.progress = replace(one.progress, stage="failed", text=text)
        self._tracker.drop(one.under_way)
        self._ask(one, "withdraw", now)

    def _fetch(self, one: _Rank, now: int) -> None:
        file = one.files[0]
        request = wire.ProfileDataRequest(0, one.view.key, file.name, one.offset, PIECE)
        received = partial(self._received, one, file)
        one.piece = self._tracker.request(
            one.view.host, request, received, now, timeout_ns=PIECE_NS, agent=one.agent
        )

    def _received(
        self, one: _Rank, file: wire.ProfileFile, response: wire.Response, now: int
    ) -> None:
        one.piece = 0
        if not self._is_awaited(one):
            return
        if not isinstance(response, wire.ProfileDataResponse) or response.error:
            text = getattr(response, "help", "") or getattr(response, "text", "")
            self._fail(one, text or "an answer of another kind", now)
            return
        data = inflated(response, file, one.offset)
        if not data or self._fetched is None:
            self._fail(one, "a piece of its file does not match the request", now)
            return
        one.unwritten = True
        written = partial(self._written, one, file, len(data))
        append = partial(self._fetched.append, one.view.rank, file.name, data)
        self._files.submit(append, written, partial(self._give_up, one))

    def _give_up(self, one: _Rank, problem: Problem, now: int) -> None:
        """There is no room here: no rank's file can be kept."""
        if self._is_awaited(one):
            self._withdraw_all(now)
            self._end("failed", problem)

    def _written(self, one: _Rank, file: wire.ProfileFile, size: int, _: None, now: int) -> None:
        one.unwritten = False
        if not self._is_awaited(one):
            return
        one.offset += size
        one.progress = replace(one.progress, done=one.progress.done + size)
        if one.offset < file.size:
            return
        one.files.pop(0)
        one.offset = 0
        if one.files:
            return
        self._ask(one, "withdraw", now)  # the rank may remove its files
        request = wire.HistoryRequest(0, one.view.key, MOST_OPS, columns=True)
        self._tracker.request(
            one.view.host, request, partial(self._finish, one), now, agent=one.agent
        )

    def _finish(self, one: _Rank, response: wire.Response, _now: int) -> None:
        if isinstance(response, wire.HistoryResponse):
            one.history = response
        one.progress = replace(one.progress, stage="done")

    # -- all of them

    def _merge(self, progress: ProfileProgress, now: int) -> None:
        done = [one for one in self._ranks.values() if one.progress.stage == "done"]
        if not done or self._frame is None:
            texts = {one.progress.text for one in self._ranks.values() if one.progress.text}
            why = next(iter(sorted(texts)), "no rank was there to be asked")
            more = f" (and {len(texts) - 1} other reasons)" if len(texts) > 1 else ""
            self._end("failed", Problem(f"no rank was profiled: {why}{more}"))
            return
        self.progress = replace(progress, state="merging", since_ns=now)
        fetched = self._fetched
        assert fetched is not None
        traces = [
            RankTrace(one.view.rank, one.view.host, fetched.of_rank(one.view.rank), one.clocks)
            for one in done
        ]
        histories = {one.view.rank: one.history for one in done if one.history is not None}
        failed = [
            f"rank {one.view.rank} is not in it: {one.progress.text}"
            for one in self._ranks.values()
            if one.progress.stage == "failed"
        ]
        # A rank that ended meanwhile may be gone from the frame, or another one have its number.
        shown = self._frame.ranks
        views = {one.view.rank: _newest(one.view, shown.get(one.view.rank)) for one in done}
        task = partial(
            write_profiles,
            Path(progress.path),
            traces,
            replace(self._frame, ranks={**shown, **views}),
            histories,
            failed,
            separate=progress.options.separate,
        )
        self._files.submit(
            task,
            lambda put, _: self._put(put, failed),
            lambda problem, _: self._end("failed", problem),
        )

    def _put(self, put: tuple[Path, int, Contents], failed: list[str]) -> None:
        path, size, contents = put
        texts = [*failed, *contents.troubles]
        problem = Problem("; ".join(texts)) if texts else None
        if self.progress is not None:
            allocations = tuple(contents.allocations)
            self.progress = replace(
                self.progress, path=str(path), size=size, allocations=allocations,
                has_modules=contents.has_modules,
            )  # fmt: skip
        self._end("written", problem)

    def _end(self, state: str, problem: Problem | None) -> None:
        fetched, self._fetched = self._fetched, None
        if fetched is not None:
            self._files.submit_silently(fetched.close)
        if self.progress is not None:
            states = tuple(one.progress for one in self._ranks.values())
            self.progress = replace(self.progress, state=state, problem=problem, ranks=states)

    def close(self, now: int) -> None:
        """Withdraws what is under way; what ranks do not hear of, they withdraw by themselves."""
        self.withdraw(now)
        self._files.close()


def _newest(ordered: JudgedRank, shown: JudgedRank | None) -> JudgedRank:
    same = shown is not None and (shown.host, shown.key) == (ordered.host, ordered.key)
    return shown if same and shown is not None else ordered


def _why_not(frame: Frame, view: JudgedRank) -> str:
    reason, text = why_not_ask(frame, view)
    if reason:
        return text
    if view.exit_info is not None:
        return f"process {view.identity.pid} has ended"
    if not view.identity.prepared:
        return "it has no recorder: start the job with `frtop run`, or sample its stacks (`r`)"
    return ""

"""Starts torch's profiler in ranks, follows them, fetches their files, and has them merged.

A rank withdraws an order by itself when no operator asks about it: an operator that is gone
leaves nothing running. One piece of a file is under way per rank, for `AT_ONCE` ranks.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from frtop_tui.connect.asking import why_not_ask
from frtop_tui.connect.file_worker import FileWorker
from frtop_tui.connect.followers import Follower
from frtop_tui.connect.request_tracker import RequestTracker
from frtop_tui.diagnosis.model import Frame, JudgedRank
from frtop_tui.features.profile.merged import Contents, write_profiles
from frtop_tui.features.profile.model import (
    MOST_RANKS,
    ProfileOptions,
    ProfileOrder,
    ProfileProgress,
    Withdrawal,
)
from frtop_tui.features.profile.pieces import FetchedFiles
from frtop_tui.features.profile.profiled_rank import OrderTerms, ProfiledRank
from frtop_tui.features.profile.withdrawals import ProfileWithdrawals
from frtop_tui.job.model import Problem
from frtop_tui.job.units import counted
from frtop_tui.job.unprepared import recorder_note

AT_ONCE: Final = 4
ANSWER_NS: Final = 10_000_000_000
"""Extra time after the wait: a rank that can will report that it reached no step."""
GRACE_NS: Final = 150_000_000_000
"""Extra time after that, for the longest profile by steps, and for writing it."""


class ProfileOrders(Follower):
    """`progress` is replaced, never changed."""

    name = "profile"
    orders = (ProfileOrder, Withdrawal)

    def __init__(self, tracker: RequestTracker) -> None:
        super().__init__(tracker)
        self._files = FileWorker()
        self._withdrawals = ProfileWithdrawals(tracker)
        self._ranks: dict[int, ProfiledRank] = {}
        self._fetched: FetchedFiles | None = None
        self._begin_until = self._until = 0
        """The times by which a rank must have begun, and must be done."""
        self._frame: Frame | None = None
        self._ended: ProfileProgress | None = None
        """How the order ended, kept until the ranks know that it did."""
        self.progress: ProfileProgress | None = None

    @property
    def news(self) -> ProfileProgress | None:
        return self.progress

    def take(self, order: ProfileOrder | Withdrawal, frame: Frame | None, now: int) -> None:
        if isinstance(order, Withdrawal):
            self.withdraw(now, keep=order.keep)
        else:
            self.order(frame, order.ranks, order.options, order.path, now)

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
        self._frame = frame
        chosen = [frame.ranks[rank] for rank in dict.fromkeys(ranks) if rank in frame.ranks]
        fetched = FetchedFiles(path.parent)
        terms = OrderTerms(
            secrets.token_hex(8),
            options,
            now,
            self._tracker,
            self._files,
            self._withdrawals,
            fetched,
            self._give_up,
        )
        found = [ProfiledRank(terms, one, _why_not(frame, one)) for one in chosen[:MOST_RANKS]]
        self._ranks = {one.view.rank: one for one in found}
        states = tuple(one.progress for one in found)
        self.progress = ProfileProgress(options, states, str(path), since_ns=now)
        self._begin_until = now + int(options.wait_s * 1e9) + ANSWER_NS
        self._until = self._begin_until + GRACE_NS
        if problem := _problem_of(len(chosen), path.parent):
            self._ranks.clear()
            self.progress = replace(self.progress, state="failed", problem=problem)
            return
        self._fetched = fetched
        for one in found:
            one.update(now)

    def withdraw(self, now: int, *, keep: bool = False) -> None:
        """Ends the order under way, in the ranks as well.

        With `keep`, complete ranks are written. It waits for ranks whose files are being fetched;
        at a second call, only files that have arrived count.
        """
        if self.progress is None or self.progress.state != "running" or self._ended is not None:
            return
        if keep and any(one.progress.complete for one in self._ranks.values()):
            self._leave_out(now)
            return
        self._end("withdrawn", Problem("withdrawn: nothing keeps running in the ranks"), now)

    def _leave_out(self, now: int) -> None:
        missing = [one for one in self._ranks.values() if not one.over]
        late = [one for one in missing if not one.progress.complete]
        if not late and any(one.progress.stage == "done" for one in self._ranks.values()):
            late = missing
        for one in late:
            why = f"{one.progress.text}: " if one.progress.text else ""
            one.fail(f"{why}the order was ended before it was done", now)

    def update(self, frame: Frame | None, now: int) -> None:
        """Asks ranks for their progress, and for pieces of their files."""
        self._files.update(now)
        self._withdrawals.update(now)
        self._say_end(now)
        progress = self.progress
        if progress is None or progress.state != "running" or self._ended is not None:
            return
        self._frame = frame or self._frame
        fetching = sum(one.fetches for one in self._ranks.values())
        for one in self._ranks.values():
            if one.over:
                continue
            if now > (self._until if one.progress.first else self._begin_until):
                text = one.progress.text or "it did not end in time"
                one.fail(f"{text}: the order is withdrawn", now)
                continue
            one.update(now)
            if one.can_fetch and fetching < AT_ONCE:
                fetching += 1
                one.fetch(now)
        states = tuple(one.progress for one in self._ranks.values())
        if states != progress.ranks:
            self.progress = progress = replace(progress, ranks=states)
        if all(one.over for one in self._ranks.values()):
            self._merge(progress, now)

    def _merge(self, progress: ProfileProgress, now: int) -> None:
        done = [one for one in self._ranks.values() if one.progress.stage == "done"]
        if not done or self._frame is None:
            texts = {one.progress.text for one in self._ranks.values() if one.progress.text}
            why = next(iter(sorted(texts)), "no rank was there to be asked")
            more = f" (and {counted(len(texts) - 1, 'other reason')})" if len(texts) > 1 else ""
            self._end("failed", Problem(f"no rank was profiled: {why}{more}"), now)
            return
        self.progress = replace(progress, state="merging", since_ns=now)
        failed = [
            f"rank {one.view.rank} is not in it: {one.progress.text}"
            for one in self._ranks.values()
            if one.progress.stage == "failed"
        ]
        # A rank that ended meanwhile may be gone from the frame, or another may have its number.
        shown = self._frame.ranks
        views = {one.view.rank: _newest(one.view, shown.get(one.view.rank)) for one in done}
        task = partial(
            write_profiles,
            Path(progress.path),
            [one.trace for one in done],
            replace(self._frame, ranks={**shown, **views}),
            {one.view.rank: one.history for one in done if one.history is not None},
            failed,
            separate=progress.options.separate,
        )
        self._files.submit(task, partial(self._written, failed), partial(self._end, "failed"))

    def _written(self, failed: list[str], put: tuple[Path, int, Contents], now: int) -> None:
        path, size, contents = put
        texts = [*failed, *contents.troubles]
        problem = Problem("; ".join(texts)) if texts else None
        if self.progress is not None:
            allocations = tuple(contents.allocations)
            self.progress = replace(
                self.progress, path=str(path), size=size, allocations=allocations,
                has_modules=contents.has_modules,
            )  # fmt: skip
        self._end("written", problem, now)

    def _give_up(self, problem: Problem, now: int) -> None:
        """Fails all ranks: there is no space for their files here."""
        self._end("failed", problem, now)

    def _end(self, state: str, problem: Problem | None, now: int) -> None:
        fetched, self._fetched = self._fetched, None
        if fetched is not None:
            self._files.submit_silently(fetched.close)
        for one in self._ranks.values():
            one.leave(now)
        if self.progress is not None:
            states = tuple(one.progress for one in self._ranks.values())
            self._ended = replace(self.progress, state=state, problem=problem, ranks=states)
        self._say_end(now)

    def _say_end(self, now: int) -> None:
        """Publishes the outcome once ranks know: exiting earlier would leave orders there."""
        ended = self._ended
        if ended is None or (ended.state != "withdrawn" and self._withdrawals.are_awaited(now)):
            return
        self.progress, self._ended = ended, None

    def close(self, now: int) -> None:
        """Withdraws the order under way; ranks that do not hear of it withdraw by themselves."""
        self.withdraw(now)
        self._files.close()


def _problem_of(ranks: int, folder: Path) -> Problem | None:
    """Why an order for this many ranks, with its file in this folder, is impossible."""
    if ranks > MOST_RANKS:
        return Problem(f"{ranks} ranks are too many", "mark at most 64")
    if not os.access(folder, os.W_OK | os.X_OK):
        return Problem(f"{folder} is not writable", "name another folder")
    return None


def _newest(ordered: JudgedRank, shown: JudgedRank | None) -> JudgedRank:
    same = shown is not None and (shown.host, shown.key) == (ordered.host, ordered.key)
    return shown if same and shown is not None else ordered


def _why_not(frame: Frame, view: JudgedRank) -> str:
    reason, text = why_not_ask(frame, view)
    if reason:
        return text
    if view.exit_info is not None:
        return f"process {view.identity.pid} has ended"
    if note := recorder_note(view):
        return note
    if not view.identity.prepared:
        return "it has no recorder: start the job with `frtop run`, or sample its stacks (`r`)"
    return ""


FOLLOWERS: Final = (ProfileOrders,)

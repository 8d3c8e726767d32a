"""One rank of an order for torch's profiler: requests to it, and its files as they arrive."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from msgspec.structs import replace

from frtop_probe import wire
from frtop_probe.features.profile.files import FILES
from frtop_probe.features.profile.messages import (
    ProfileFile,
    ProfileRank,
    ProfileResponse,
    ReadProfile,
)
from frtop_tui.connect.file_worker import FileWorker
from frtop_tui.connect.pieces import PartWanted, Pieces
from frtop_tui.connect.request_tracker import RequestTracker
from frtop_tui.diagnosis.model import JudgedRank
from frtop_tui.features.profile.model import ProfileOptions, RankProfile, RankStage
from frtop_tui.features.profile.pieces import MOST_BYTES, FetchedFiles
from frtop_tui.features.profile.torch_lanes import RankTrace
from frtop_tui.features.profile.withdrawals import LATER, ProfileWithdrawals
from frtop_tui.job.model import Problem
from frtop_tui.job.units import byte_size

POLL_NS: Final = 1_000_000_000
SILENT_POLL_NS: Final = 5_000_000_000
"""Pause for a rank that did not answer: its agent waits nearly 2 s for it, for few at a time."""
BUSY_NS: Final = 20_000_000_000
"""How long a rank may be busy for another operator; an operator that is gone loses it in 15 s."""
MOST_OPS: Final = 5000
"""The most ops of a rank that are shown beside its profile."""
_STAGES: Final[dict[str, RankStage]] = {
    "waiting": "waiting",
    "warming": "warming",
    "running": "running",
    "saving": "saving",
}


@dataclass(frozen=True, slots=True)
class OrderTerms:
    """What all ranks of one order share."""

    token: str
    options: ProfileOptions
    since: int
    tracker: RequestTracker
    worker: FileWorker
    withdrawals: ProfileWithdrawals
    fetched: FetchedFiles
    give_up: Callable[[Problem, int], None]
    """Called when a file cannot be stored here: then no rank's file can."""

    @property
    def busy_until(self) -> int:
        """The time until which a rank that is busy for another operator is asked again."""
        return self.since + min(BUSY_NS, int(self.options.wait_s * 1e9))


class ProfiledRank:
    """Begins an order in a rank, follows it there, and fetches its files."""

    def __init__(self, terms: OrderTerms, view: JudgedRank, why_not: str) -> None:
        """`why_not`: why it cannot be profiled, "" if it can."""
        self.view = view
        self.progress = RankProfile(view.rank, view.host)
        if why_not:
            self.progress = replace(self.progress, stage="failed", text=why_not)
        self.history: wire.HistoryResponse | None = None
        self._terms = terms
        self._agent = terms.tracker.agent(view.host)
        self._left = False
        self._ask_ns = 0
        """When to ask it again."""
        self._under_way: dict[str, int] = {}
        """Requests by action."""
        self._pieces: Pieces | None = None
        self._clocks: tuple[tuple[int, int], ...] = ()
        self._files: list[ProfileFile] = []

    @property
    def over(self) -> bool:
        """Whether it is done, or has failed."""
        return self.progress.stage in ("done", "failed")

    @property
    def fetches(self) -> bool:
        """Whether its files are being fetched."""
        return self._pieces is not None and not self._pieces.over

    @property
    def can_fetch(self) -> bool:
        """Whether its files can be asked for."""
        return self.progress.stage == "fetching" and self._pieces is None

    @property
    def trace(self) -> RankTrace:
        """The rank's files, for the merged file."""
        files = self._terms.fetched.of_rank(self.view.rank)
        return RankTrace(self.view.rank, self.view.host, files, self._clocks)

    def update(self, now: int) -> None:
        """Sends the order, or asks for its progress, if that is due."""
        if not self.over and not self._under_way and now >= self._ask_ns:
            # An unanswered order may never have been read; a rank takes the same order only once.
            self._ask("begin" if self.progress.stage == "ordered" else "status", now)

    def fail(self, text: str, now: int) -> None:
        """Ends the order in this rank, without a file."""
        self._drop_requests()
        self._withdraw(now)
        self.progress = replace(self.progress, stage="failed", text=text)

    def leave(self, now: int) -> None:
        """Ends the order in this rank silently: it is over in all ranks."""
        if not self.over and not self._left:
            self._drop_requests()
            self._withdraw(now)
        self._left = True

    def fetch(self, now: int) -> None:
        """Asks for its files."""
        terms, rank = self._terms, self.view.rank
        parts = [
            PartWanted(
                file.size,
                partial(self._piece_request, file.name),
                partial(terms.fetched.append, rank, file.name),
            )
            for file in self._files
        ]
        self._pieces = Pieces(
            self, terms.tracker, terms.worker, parts,
            host=self.view.host, agent=self._agent, window=1,
        )  # fmt: skip
        self._pieces.go_on(now)

    def _piece_request(self, name: str, offset: int, size: int) -> ReadProfile:
        return ReadProfile(0, self.view.key, offset, size, name)

    def _withdraw(self, now: int) -> None:
        self._terms.withdrawals.withdraw(
            self.view, self._agent, self._terms.token, now,
            awaited=self.progress.stage != "ordered",
        )  # fmt: skip

    def _drop_requests(self) -> None:
        self._terms.tracker.drop(*self._under_way.values())
        if self._pieces is not None:
            self._pieces.stop()

    def _ask(self, action: str, now: int) -> None:
        options = self._terms.options
        request = ProfileRank(
            id=0,
            key=self.view.key,
            action=action,
            order=self._terms.token,
            steps=options.steps,
            seconds=options.seconds,
            wait_s=options.wait_s,
            shapes=options.shapes,
            stacks=options.stacks,
            memory=options.memory,
            execution=options.execution,
            at_step=options.at_step,
            warm_up=options.warm_up,
        )
        self._ask_ns = now + POLL_NS
        self._terms.tracker.request(
            self.view.host, request, self._answered, now,
            agent=self._agent, under_way=self._under_way, about=action,
        )  # fmt: skip

    def _answered(self, response: wire.Response, now: int) -> None:
        if self.over or self._left:
            return
        if not isinstance(response, ProfileResponse):
            text = (
                response.text if isinstance(response, wire.Error) else "an answer of another kind"
            )
            reason = response.reason if isinstance(response, wire.Error) else ""
            self._note(text, SILENT_POLL_NS if reason in LATER else 0, now)
            return
        if response.error:
            self._note(response.help, self._pause_ns(response, now), now)
            return
        self.progress = replace(
            self.progress,
            first=response.first,
            last=response.last,
            lasted_ns=response.lasted_ns,
            stood_still_ns=response.stood_still_ns,
            text=response.help,
        )
        if response.stage == "ready" and self.progress.stage != "fetching":
            self._take_files(response, now)
        elif response.stage in _STAGES and self.progress.stage != "fetching":
            self.progress = replace(self.progress, stage=_STAGES[response.stage])

    def _pause_ns(self, response: ProfileResponse, now: int) -> int:
        """How long to wait after an error before asking again; 0: it is final."""
        if response.error == "busy" and now < self._terms.busy_until:
            return POLL_NS
        return SILENT_POLL_NS if response.error in LATER and response.stage != "over" else 0

    def _note(self, text: str, pause_ns: int, now: int) -> None:
        if pause_ns:
            self._ask_ns = now + pause_ns
            self.progress = replace(self.progress, text=text)
        elif self.progress.stage != "fetching":  # while fetching, its files arrive without it
            self.fail(text, now)

    def _take_files(self, response: ProfileResponse, now: int) -> None:
        self._clocks = response.clocks
        self._files = [file for file in response.files if file.size > 0 and file.name in FILES]
        total = sum(file.size for file in self._files)
        if len(self._clocks) != 2 or all(file.name != "trace" for file in self._files):
            self.fail("torch wrote no trace", now)
        elif any(file.size > MOST_BYTES for file in self._files):
            self.fail(f"its files have {byte_size(total)}: profile fewer steps", now)
        else:
            self.progress = replace(self.progress, stage="fetching", total=total)

    def piece_written(self, size: int, now: int) -> None:  # noqa: ARG002
        self.progress = replace(self.progress, done=self.progress.done + size)

    def pieces_refused(self, text: str, now: int) -> None:
        self.fail(text, now)

    def pieces_unwritten(self, problem: Problem, now: int) -> None:
        if not (self.over or self._left):
            self._terms.give_up(problem, now)

    def pieces_complete(self, now: int) -> None:
        if self.over or self._left:
            return
        self._withdraw(now)  # now the rank may remove its files
        request = wire.HistoryRequest(0, self.view.key, MOST_OPS)
        self._terms.tracker.request(self.view.host, request, self._finish, now, agent=self._agent)

    def _finish(self, response: wire.Response, _now: int) -> None:
        if self.over or self._left:
            return
        if isinstance(response, wire.HistoryResponse):
            self.history = response
        self.progress = replace(self.progress, stage="done")

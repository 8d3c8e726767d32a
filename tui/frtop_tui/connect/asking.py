"""Sends the requests to ranks that keys, verbs and watchers give to `Source.do` (`source.py`).

The request's class (`wire.declaration`) says whether it acts, how long it may take, how many a host
gets at a time, and whether to send it again. The answers appear in the frame, or in the news of the
follower that takes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from msgspec.structs import replace

from frtop_probe import wire
from frtop_tui.connect.request_tracker import RequestTracker
from frtop_tui.diagnosis.model import Frame, JudgedRank

Kind = type[wire.RankRequest]
OnAnswer = Callable[[JudgedRank, wire.RankRequest, wire.Response, int], None]
"""Takes the rank, the request, and the rank's answer, or our own error if it gave none."""


class Asking:
    """Belongs to the source's thread."""

    def __init__(self, tracker: RequestTracker, answered: OnAnswer) -> None:
        self._tracker = tracker
        self._on_answer = answered
        self._open: dict[tuple[Kind, str, int], int] = {}
        """Unanswered requests: by class, host and key."""
        self._again: set[tuple[wire.RankRequest, int]] = set()
        """Ranks whose agent was restarted before they answered."""

    def do(
        self, frame: Frame | None, request: wire.RankRequest, ranks: Iterable[int], now: int
    ) -> None:
        kind = type(request)
        views = [frame.ranks[rank] for rank in ranks if rank in frame.ranks] if frame else []
        for view in views:
            slot = kind, view.host, view.key
            if frame is None or slot in self._open:
                continue
            reason, text = why_not_ask(frame, view, request)
            if not reason and sum(one[0] is kind for one in self._open) >= request.most_ranks:
                reason, text = "busy", f"{request.most_ranks} ranks can be asked at a time"
            asked = replace(request, key=view.key)
            if reason:
                self._end(view, asked, wire.Error(0, text, reason), now)
                continue
            answered = partial(self._answered, view, asked)
            agent = self._tracker.agent(view.host)
            self._tracker.request(
                view.host, asked, answered, now, agent=agent, under_way=self._open, about=slot
            )

    def update(self, frame: Frame | None, now: int) -> None:
        """Asks ranks again, by their new keys, after their agent was restarted."""
        if frame is not None and self._again:
            again, self._again = self._again, set()
            for request, rank in again:
                self.do(frame, request, (rank,), now)

    def _answered(
        self, view: JudgedRank, request: wire.RankRequest, response: wire.Response, now: int
    ) -> None:
        gone = isinstance(response, wire.Error) and response.reason == "gone"
        if gone and not request.once:
            self._again.add((request, view.rank))  # the former key may now be another rank's
        else:
            self._end(view, request, response, now)

    def _end(
        self, view: JudgedRank, request: wire.RankRequest, response: wire.Response, now: int
    ) -> None:
        if isinstance(response, wire.Error):
            reason = response.reason or "refused"
            response = request.unanswered(view.host, reason, response.text)
        self._on_answer(view, request, response, now)


def why_not_ask(
    frame: Frame, view: JudgedRank, request: wire.RankRequest | Kind = wire.RankRequest
) -> tuple[str, str]:
    """Why we must not ask a rank, as a reason of the wire and a sentence; "" if we may."""
    host = next((one for one in frame.hosts if one.name == view.host), None)
    if request.acts and frame.read_only:
        return "permission", f"ranks cannot be asked: {frame.read_only}"
    if request.acts and host is not None and not host.may_act:
        text = f"our key may only read on {view.host}; its owner can allow more: `frtop key admit`"
        return "permission", text
    if view.state == "unreachable" or (host is not None and host.state == "failed"):
        return "unreachable", f"{view.host} is unreachable; ask again when it is"
    if request.needs_life and view.exit_info is not None:
        return "gone", f"process {view.identity.pid} has ended and has no stacks"
    return "", ""

"""Asks ranks what somebody wants to know of them: the one way for keys, verbs and watchers.

What a request is, its class says (`wire.declaration`): whether it acts, how long it may take, how
many a host gets at a time, whether it is sent again. The answers are in the frame.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from msgspec.structs import replace

from frtop_probe import wire
from frtop_tui.connect.request_tracker import RequestTracker
from frtop_tui.diagnosis.model import Frame, JudgedRank

Kind = type[wire.RankRequest]


@dataclass(frozen=True, slots=True)
class _Wanted:
    view: JudgedRank
    request: wire.RankRequest
    agent: int


class Asking:
    """Belongs to the source's thread."""

    def __init__(
        self, tracker: RequestTracker, apply: Callable[[str, wire.Response, int], None]
    ) -> None:
        """Args: apply: takes an answer of ours that says why a host has none."""
        self._tracker = tracker
        self._apply = apply
        self._queues: dict[tuple[Kind, str], deque[_Wanted]] = defaultdict(deque)
        self._under_way: Counter[tuple[Kind, str]] = Counter()
        self._open: set[tuple[Kind, str, int]] = set()
        """What is queued or under way: class, host and key."""
        self._again: set[tuple[wire.RankRequest, int]] = set()
        """Ranks whose agent was restarted before they answered."""

    def do(
        self, frame: Frame | None, request: wire.RankRequest, ranks: Iterable[int], now: int
    ) -> None:
        """Asks these ranks, unless they are being asked that already."""
        kind = type(request)
        views = [frame.ranks[rank] for rank in ranks if rank in frame.ranks] if frame else []
        for view in views:
            slot = kind, view.host, view.key
            if frame is None or slot in self._open:
                continue
            reason, text = why_not_ask(frame, view, request)
            if not reason and sum(one[0] is kind for one in self._open) >= request.most_ranks:
                reason, text = "busy", f"{request.most_ranks} ranks are asked at a time"
            asked = replace(request, key=view.key)
            if reason:
                self._end(view, asked, wire.Error(0, text, reason), now)
                continue
            self._open.add(slot)
            agent = self._tracker.agent(view.host)
            self._queues[kind, view.host].append(_Wanted(view, asked, agent))
        self._send(now)

    def update(self, frame: Frame | None, now: int) -> None:
        """Asks ranks again whose agent was restarted meanwhile: by their new keys."""
        if frame is not None and self._again:
            again, self._again = self._again, set()
            for request, rank in again:
                self.do(frame, request, (rank,), now)

    def _send(self, now: int) -> None:
        for (kind, host), queue in list(self._queues.items()):
            while queue and self._under_way[kind, host] < kind.at_once:
                one = queue.popleft()
                self._under_way[kind, host] += 1
                self._tracker.request(
                    host,
                    one.request,
                    partial(self._answered, one),
                    now,
                    agent=one.agent,
                )
            if not queue:
                del self._queues[kind, host]

    def _answered(self, one: _Wanted, response: wire.Response, now: int) -> None:
        kind, view = type(one.request), one.view
        self._under_way[kind, view.host] -= 1
        self._open.discard((kind, view.host, view.key))
        gone = isinstance(response, wire.Error) and response.reason == "gone"
        if gone and not kind.once:
            self._again.add((one.request, view.rank))  # the former key may be another rank's
        else:
            self._end(view, one.request, response, now)
        self._send(now)

    def _end(
        self, view: JudgedRank, request: wire.RankRequest, response: wire.Response, now: int
    ) -> None:
        """The session has put an answer of the rank into the job's state already."""
        if isinstance(response, wire.Error):
            reason = response.reason or "refused"
            response = request.unanswered(view.host, reason, response.text)
            self._apply(view.host, response, now)


def why_not_ask(
    frame: Frame, view: JudgedRank, request: wire.RankRequest | Kind = wire.RankRequest
) -> tuple[str, str]:
    """Why a rank must not be asked, as a reason of the wire and a sentence; "" if it may."""
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

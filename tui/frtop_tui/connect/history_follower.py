"""Follows the ops of ranks through the histories that agents send on request.

An agent publishes how far ranks are, not every op: nobody reads a thousand ops a second. Every half
second, a follower requests a rank's newest ops: all issued since, and a few more, so that the
overlap proves that none is missing. A host gets one such request at a time, so a slow host gets
fewer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Final, Generic, TypeVar

from frtop_probe import wire
from frtop_tui.connect.request_tracker import RequestTracker
from frtop_tui.diagnosis.model import JudgedRank

INTERVAL_NS: Final = 500_000_000
OVERLAP: Final = 64
"""Ops requested beyond those issued: steps take slots of a ring, too."""
MOST: Final = 8192
"""Ops in one response. If a rank issues more between two responses, we miss some."""


@dataclass(slots=True)
class FollowedRank:
    asked_ns: int = 0
    issued: int = 0  # by its counters, at the last request
    limit: int = OVERLAP
    begun: bool = False  # some of its ops are known
    again: bool = True  # ask even if nothing was issued
    agent: tuple[int, int] = (0, 0)  # generation of the host's agent, and its key for the rank


Process = tuple[str, bool, int, int]
"""Host, whether it has a recorder, pid, start."""
Known = TypeVar("Known", bound=FollowedRank)


class HistoryFollower(Generic[Known]):
    """Followers differ in what they keep about a rank, and in how far back they ask."""

    REMEMBER_NS: ClassVar = 0
    """How long it keeps what it knows of ranks that it no longer sees, such as those of a host
    that has no agent for a while."""

    def __init__(self, tracker: RequestTracker) -> None:
        self._tracker = tracker
        self._ranks: dict[Process, Known] = {}
        self._unseen: dict[Process, tuple[Known, int]] = {}
        """Oldest first, and since when."""
        self._under_way: dict[str, int] = {}

    def key(self, view: JudgedRank) -> Process:
        """What a rank is known by."""
        identity = view.identity
        return view.host, identity.prepared, identity.pid, identity.start_ticks

    def begin(self, view: JudgedRank) -> Known:
        """The initial knowledge about a rank."""
        raise NotImplementedError

    def of_new_agent(self, view: JudgedRank, known: Known) -> Known | None:  # noqa: ARG002
        """What stays known of a rank without a recorder, whose new agent numbers ops anew.

        None: not enough is known of it yet to tell.
        """
        return self.begin(view)

    def how_far_back(self, view: JudgedRank, known: Known, *, quiet: bool) -> int | None:
        """How many ops to request beyond the new ones; None if nothing can be new.

        `quiet`: the rank has issued nothing since the last request.
        """
        raise NotImplementedError

    def nothing_new(self, view: JudgedRank, known: Known, now: int) -> None:
        """Notes that a rank has no new ops."""

    def take_history(
        self, view: JudgedRank, known: Known, history: wire.History, limit: int, asked_ns: int
    ) -> bool:
        """Takes the newest `limit` ops; False if they do not reach back to the ones before."""
        raise NotImplementedError

    def failed(self, view: JudgedRank, known: Known, text: str) -> None:
        """Takes the reason why there are none."""
        raise NotImplementedError

    def take_turns(self, views: Iterable[JudgedRank], now: int) -> bool:
        """Asks each host about the rank whose last request is oldest.

        Returns whether ranks came or went.
        """
        hosts: defaultdict[str, list[tuple[int, JudgedRank, Known]]] = defaultdict(list)
        there = {}
        for view in views:
            key = self.key(view)
            unseen, _ = self._unseen.pop(key, (None, 0))
            known = self._ranks.get(key) or unseen or self.begin(view)
            agent = self._tracker.agent(view.host), view.key
            current: Known | None = known
            if not view.identity.prepared and known.begun and known.agent != agent:
                current = self.of_new_agent(view, known)
            there[key] = current or known
            if current is not None:
                current.agent = agent
                if view.state != "unreachable":
                    hosts[view.host].append((current.asked_ns, view, current))
        if changed := there.keys() != self._ranks.keys():
            gone = self._ranks.keys() - there.keys()
            self._unseen |= {key: (self._ranks[key], now) for key in gone}
        while self._unseen and now - next(iter(self._unseen.values()))[1] >= self.REMEMBER_NS:
            del self._unseen[next(iter(self._unseen))]
        self._ranks = there
        for ranks in hosts.values():
            asked_ns, view, known = min(ranks, key=lambda one: one[0])
            if now - asked_ns >= INTERVAL_NS:
                self._ask(view, known, now)
        return changed

    def _ask(self, view: JudgedRank, known: Known, now: int) -> None:
        issued = issued_by(view)
        quiet = not known.again and issued == known.issued
        back = self.how_far_back(view, known, quiet=quiet)
        if back is None:
            known.asked_ns = now
            self.nothing_new(view, known, now)
            return
        new = max(0, issued - known.issued) if known.begun else 0
        # Twice as many as there were: more arrive before the agent answers, and steps take slots.
        limit = min(MOST, max(known.limit, 2 * new + OVERLAP, back + new + OVERLAP))
        request = wire.HistoryRequest(0, view.key, limit)
        received = partial(self._received, view, known, limit, now)
        if self._tracker.request_now(
            view.host, request, received, now, under_way=self._under_way, about=view.host
        ):
            known.asked_ns = now
            known.issued = issued

    def _received(
        self,
        view: JudgedRank,
        known: Known,
        limit: int,
        asked_ns: int,
        response: wire.Response,
        _now: int,
    ) -> None:
        known.again = not isinstance(response, wire.HistoryResponse)
        if not isinstance(response, wire.HistoryResponse):
            text = response.text if isinstance(response, wire.Error) else "no history"
            self.failed(view, known, text)
        elif self.take_history(view, known, response.history, limit, asked_ns):
            known.limit = OVERLAP
        else:  # and at once, before the ring turns over
            known.limit, known.asked_ns, known.again = min(MOST, 4 * limit), 0, True


def issued_by(view: JudgedRank) -> int:
    """How many ops a rank has issued, according to its counters."""
    if view.status is not None and view.identity.prepared:
        return view.status.ops
    return sum(one.number + one.p2p for one in view.group_progress.values())

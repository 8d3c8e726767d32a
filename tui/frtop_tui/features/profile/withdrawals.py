"""Withdraws orders for torch's profiler, and repeats that until the ranks know it.

A rank that still has an order refuses the next one, and keeps its files.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final

from frtop_probe import wire
from frtop_probe.features.profile.messages import ProfileRank, ProfileResponse
from frtop_tui.connect.request_tracker import RequestTracker
from frtop_tui.diagnosis.model import JudgedRank

REPEAT_NS: Final = 1_000_000_000
SILENT_NS: Final = 5_000_000_000
"""The pause for a rank that does not run: its agent waits nearly 2 s for each request."""
AWAITED_NS: Final = 5_000_000_000
"""How long the end of an order may wait for the withdrawals."""
REPEATED_NS: Final = 15_000_000_000
"""A rank that receives nothing for this long withdraws the order itself."""
LATER: Final = frozenset({"silent", "deadline", "stopped", "none", "lost"})
"""Reasons why a rank does not answer now but may answer later."""


@dataclass(slots=True, eq=False)
class _Withdrawal:
    view: JudgedRank
    agent: int
    token: str
    since: int
    awaited: bool
    next_ns: int = 0


class ProfileWithdrawals:
    """Used from the source's thread. An order's withdrawals may outlive it."""

    def __init__(self, tracker: RequestTracker) -> None:
        self._tracker = tracker
        self._open: list[_Withdrawal] = []
        self._under_way: dict[_Withdrawal, int] = {}

    def withdraw(
        self, view: JudgedRank, agent: int, token: str, now: int, *, awaited: bool
    ) -> None:
        """Withdraws an order in one rank.

        `awaited`: the rank has answered before, so it is worth waiting for.
        """
        one = _Withdrawal(view, agent, token, now, awaited)
        self._open.append(one)
        self._ask(one, now)

    def are_awaited(self, now: int) -> bool:
        """Whether a rank that has answered before may soon acknowledge a withdrawal."""
        return any(one.awaited and now - one.since < AWAITED_NS for one in self._open)

    def update(self, now: int) -> None:
        """Repeats withdrawals that are due."""
        for one in list(self._open):
            if now - one.since >= REPEATED_NS:
                self._tracker.drop(self._under_way.get(one, 0))
                self._open.remove(one)
            elif one not in self._under_way and now >= one.next_ns:
                self._ask(one, now)

    def _ask(self, one: _Withdrawal, now: int) -> None:
        one.next_ns = now + REPEAT_NS
        request = ProfileRank(0, one.view.key, "withdraw", one.token)
        received = partial(self._answered, one)
        self._tracker.request(
            one.view.host, request, received, now,
            agent=one.agent, under_way=self._under_way, about=one,
        )  # fmt: skip

    def _answered(self, one: _Withdrawal, response: wire.Response, now: int) -> None:
        reason = response.reason if isinstance(response, wire.Error) else ""
        if isinstance(response, ProfileResponse) and response.stage != "over":
            reason = response.error
        if reason in ("silent", "stopped"):
            one.next_ns = now + SILENT_NS
        elif reason not in LATER and one in self._open:
            self._open.remove(one)

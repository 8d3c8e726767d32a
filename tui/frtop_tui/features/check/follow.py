"""Reads the newest steps of ranks from their agents, each once. Only what a step has is remembered.

An agent reads rings, and asks no rank. A rank of which too few steps were seen is read again,
further back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from msgspec import Struct

from frtop_probe import wire
from frtop_probe.history_columns import length
from frtop_tui.connect.asking import why_not_ask
from frtop_tui.connect.followers import Follower, Order
from frtop_tui.connect.request_tracker import RequestTracker
from frtop_tui.diagnosis.model import Frame, JudgedRank
from frtop_tui.features.check.facts import (
    FEWEST,
    MOST_STEPS,
    NO_RECORDER,
    RankSteps,
    steps_of_history,
)

FEWEST_OPS: Final = 512
"""Ops in a request, at least: what precedes training makes the mean of a step meaningless."""
MOST_OPS: Final = 65_536
MANY_OPS: Final = 1_000_000
"""Ops of all ranks together in the first requests: some 20 bytes each."""
AT_ONCE: Final = 64
"""Requests under way on all hosts together: each answer is decoded between two updates."""


class ReadSteps(Struct, Order, frozen=True):
    """Read the newest steps of these ranks, now."""

    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StepsRead:
    """The steps of the ranks that were read; `problems` says why others could not be.

    It is complete if `left` is 0.
    """

    steps: Mapping[int, RankSteps] = field(default_factory=dict)
    problems: Mapping[int, str] = field(default_factory=dict)
    left: int = 0
    order: ReadSteps | None = None


@dataclass(frozen=True, slots=True)
class _Question:
    view: JudgedRank
    agent: int  # generation of the agent that gave the key
    limit: int


class StepsFollower(Follower):
    """Carries out `ReadSteps`."""

    name = "check"
    orders = (ReadSteps,)
    nothing = StepsRead()

    def __init__(self, tracker: RequestTracker) -> None:
        super().__init__(tracker)
        self._order: ReadSteps | None = None
        self._waiting: deque[_Question] = deque()
        self._under_way: dict[int, int] = {}
        self._steps: dict[int, RankSteps] = {}
        self._problems: dict[int, str] = {}
        self._news = self.nothing

    @property
    def news(self) -> StepsRead:
        return self._news

    def take(self, order: ReadSteps, frame: Frame | None, now: int) -> None:
        self._tracker.drop(*self._under_way.values())
        self._order = order
        self._waiting.clear()
        self._steps, self._problems = {}, {}
        for rank in order.ranks:
            view = frame.ranks.get(rank) if frame is not None else None
            if frame is None or view is None:
                self._problems[rank] = "it has not reported"
            elif not view.identity.prepared:
                self._problems[rank] = NO_RECORDER
            elif problem := why_not_ask(frame, view, wire.HistoryRequest)[1]:
                self._problems[rank] = problem
            else:
                limit = ops_of_steps(view, len(order.ranks))
                self._waiting.append(_Question(view, self._tracker.agent(view.host), limit))
        self._ask(now)

    def update(self, frame: Frame | None, now: int) -> None:  # noqa: ARG002
        self._ask(now)

    def close(self, now: int) -> None:  # noqa: ARG002
        self._tracker.drop(*self._under_way.values())

    def _ask(self, now: int) -> None:
        while self._waiting and len(self._under_way) < AT_ONCE:
            one = self._waiting.popleft()
            request = wire.HistoryRequest(0, one.view.key, one.limit)
            self._tracker.request(
                one.view.host, request, partial(self._received, one), now, agent=one.agent,
                under_way=self._under_way, about=one.view.rank,
            )  # fmt: skip
        self._publish()

    def _received(self, one: _Question, response: wire.Response, now: int) -> None:
        rank = one.view.rank
        if not isinstance(response, wire.HistoryResponse):
            self._problems[rank] = (
                response.text if isinstance(response, wire.Error) else "no history"
            )
            self._ask(now)
            return
        history = response.history
        try:
            found = steps_of_history(history, one.view.groups)
            reaches_back = history.columns is None or 2 * length(history.columns) < one.limit
        except ValueError as error:
            self._problems[rank] = f"its history cannot be read: {error}"
        else:
            too_few = len(found) < FEWEST and not reaches_back and one.limit < MOST_OPS
            if too_few:
                limit = min(MOST_OPS, 4 * one.limit)
                self._waiting.append(_Question(one.view, one.agent, limit))
            else:
                self._steps[rank] = found
        self._ask(now)

    def _publish(self) -> None:
        left = len(self._waiting) + len(self._under_way)
        known = len(self._news.steps) + len(self._news.problems)
        if (
            self._news.order is not self._order
            or left != self._news.left
            or known != len(self._steps) + len(self._problems)
        ):
            self._news = StepsRead(dict(self._steps), dict(self._problems), left, self._order)


def ops_of_steps(view: JudgedRank, ranks: int) -> int:
    """How many ops back enough steps are, if all steps of a rank have had equally many."""
    status = view.status
    each = status.ops / status.step if status is not None and status.step else 0.0
    most = max(FEWEST_OPS, MANY_OPS // max(1, ranks))
    wanted = max(min(most, each * (MOST_STEPS + 2)), each * (FEWEST + 2))
    return round(min(MOST_OPS, max(FEWEST_OPS, wanted)))


FOLLOWERS: Final = (StepsFollower,)

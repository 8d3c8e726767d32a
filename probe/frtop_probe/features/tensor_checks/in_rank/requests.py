"""Answers requests about sampled numbers: starts watches, and returns samples."""

from __future__ import annotations

import time
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from frtop_probe.features.tensor_checks.in_rank.hooks import CURRENT, install
from frtop_probe.features.tensor_checks.in_rank.stats import Sample
from frtop_probe.features.tensor_checks.in_rank.watch import NumberWatch, WatchPlan
from frtop_probe.recorder.feature import RankFeature, RankSetting
from frtop_probe.recorder.requests.requests import INVALID, GoOn, Request, Response, numbers_of

if TYPE_CHECKING:
    from frtop_probe.recorder.recorder import Recorder

MOST_SECONDS: Final = 3600
"""Longest watch in s; then it ends by itself, because its operator may be gone."""
WAIT_NS: Final = 5_000_000_000
"""How long a watch waits for its first step."""
MOST_OPS: Final = 1_000_000
MOST_ROWS: Final = 512
"""Most samples in one answer."""
MOST_GROUPS: Final = 512
MOST_LETTERS: Final = 120
"""Most letters of an operator's name."""


def plan_of(request: Request, now_ns: int) -> WatchPlan | None:
    """Returns the plan in a request; None if it makes no sense."""
    numbers = numbers_of(request, "every", "ops", "seconds", "steps", "from_step")
    groups = request.get("groups", [])
    if numbers is None or not isinstance(groups, list) or len(groups) > MOST_GROUPS:
        return None
    if not all(type(group) is int for group in groups):
        return None
    every, ops, seconds, steps, from_step = numbers
    seconds = min(seconds, MOST_SECONDS)
    ops, steps = min(ops, MOST_OPS), min(steps, MOST_OPS)
    return WatchPlan(
        max(1, every),
        ops,
        now_ns + seconds * 1_000_000_000,
        request.get("inputs") is True,
        frozenset(groups),
        steps,
        (ops, seconds, steps),
        from_step,
        now_ns + WAIT_NS,
        str(request.get("by", ""))[:MOST_LETTERS],
    )


class NumberRequests(RankFeature):
    """Sampled numbers of one rank."""

    def __init__(self, recorder: Recorder, torch: Any) -> None:
        self.op_watch = self._watch = watch = NumberWatch(
            torch, recorder.steps, recorder.ring.write_note
        )
        watch.install = lambda: install(torch, watch, recorder.alive)
        self.handlers = {"ReadSamples": self._asked_for_samples}
        self.settings = {"numbers": RankSetting(self._asked_to_watch, self.state)}

    def modules_recorded(self, issuers: Any) -> None:
        self._watch.names = issuers

    def joined(self) -> None:
        self._watch.stop(join=True)

    def abandon_in_child(self) -> None:
        CURRENT.watch = None

    def state(self) -> dict[str, Any]:
        """Returns the fields of `NumberState`."""
        watch, now = self._watch, time.monotonic_ns()
        plan = watch.watching[0] if watch.watching else None
        found: dict[str, Any] = {
            "samples": watch.count,
            "unseen": watch.ops.unseen,
            "skipped": watch.skipped,
            "thinned": watch.thinned,
            "watch": watch.watches,
        }
        if plan is None:
            return {**found, "on": watch.busy, "failure": watch.failure, "by": watch.ended_by}
        return {
            **found,
            "on": True,
            "every": plan.every,
            "ops_left": max(0, plan.ops),
            "seconds_left": max(0, (plan.until_ns - now) // 1_000_000_000),
            "steps_left": max(0, plan.steps),
            "by": plan.by,
        }

    def _asked_to_watch(self, request: Any) -> str:
        """Carries out an order; returns "", or why it cannot."""
        if not isinstance(request, dict):
            return ""
        plan = plan_of(request, time.monotonic_ns())
        if plan is None:
            return "the order was not understood"
        if plan.ops or plan.steps:
            self._watch.start(plan)
        elif request.get("watch", 0) in (0, self._watch.watches):
            self._watch.ended_by = plan.by if self._watch.watching else self._watch.ended_by
            self._watch.stop()
        return ""

    def _asked_for_samples(self, request: Request, go_on: GoOn) -> Response:  # noqa: ARG002
        """Returns the oldest samples after number `after`."""
        numbers = numbers_of(request, "after")
        if numbers is None:
            return INVALID
        state = self.state()  # first: once it says off, all samples are there
        samples: deque[Sample] = self._watch.samples.copy()
        newer = (one.row() for one in samples if one.n > numbers[0])
        rows = list(islice(newer, MOST_ROWS))
        first = samples[0].n if samples else self._watch.count + 1
        lost = max(0, first - 1 - max(numbers[0], self._watch.begun_at))
        return {"samples": rows, "lost": lost, "state": state}, b""

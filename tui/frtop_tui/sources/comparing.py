"""Ops that the diagnosis wants to compare: asked of their ranks, and put where it finds them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final

from frtop_probe import wire
from frtop_tui.diagnosis.detectors.mismatch.checksums import OpsRequest
from frtop_tui.export.histories import ops_of
from frtop_tui.job.state import JobState
from frtop_tui.sources.errands import Errands

MOST_OPS: Final = 1024
"""Of one answer: no block is larger."""


class Comparing:
    """Belongs to the source's thread. Every question ends: with ops, or with none."""

    def __init__(self, errands: Errands, state: JobState) -> None:
        self._errands = errands
        self._state = state

    def want(self, wanted: Iterable[OpsRequest], now: int) -> None:
        for one in wanted:
            question = wire.HistoryRequest(0, one.key, 0, one.group, one.first, one.last)
            agent = self._errands.agent(one.host)
            then = partial(self._answered, one)
            self._errands.ask(one.host, question, then, now, agent=agent)

    def _answered(self, one: OpsRequest, answer: wire.Response, _now: int) -> None:
        ops: tuple[wire.Op, ...] = ()
        if isinstance(answer, wire.HistoryResponse):
            ops = tuple(
                op
                for op in ops_of(answer.history)
                if op.group == one.group and one.first <= op.number <= one.last and not op.p2p
            )[:MOST_OPS]
        self._state.apply_ops(one.host, one.key, one.hint, ops)

"""Asks for samples of ranks' stacks, taken from outside, and keeps them."""

from __future__ import annotations

import re
from typing import Final

from frtop_probe.features.flame.messages import SampleResponse, SampleStacks
from frtop_tui.connect.followers import Follower
from frtop_tui.connect.request_tracker import RequestTracker
from frtop_tui.diagnosis.model import JudgedRank
from frtop_tui.features.flame.words import RankSamples, SampledStacks

_THREAD: Final = re.compile(r"^thread \((?:0x)?[0-9A-Fa-f]+\)(?:: (.*))?$")


class StackSampling(Follower):
    """`samples` is replaced, never changed."""

    name = "flame"
    nothing = SampledStacks()
    requests = (SampleStacks,)

    def __init__(self, tracker: RequestTracker) -> None:
        super().__init__(tracker)
        self.samples = SampledStacks()

    @property
    def news(self) -> SampledStacks:
        return self.samples

    def asked(self, ranks: tuple[int, ...], now: int) -> None:
        """Forgets earlier samples."""
        self.samples = SampledStacks((), ranks, now)

    def answered(self, view: JudgedRank, response: SampleResponse, now: int) -> None:  # noqa: ARG002
        before = self.samples
        if view.rank not in before.waiting:
            return
        found = RankSamples(
            view.rank,
            tuple((frames_of(text), count) for text, count in response.stacks if count > 0),
            response.seconds,
            response.rate,
            response.missed,
            response.help or response.note,
        )
        ranks = sorted((*before.ranks, found), key=lambda one: one.rank)
        waiting = tuple(rank for rank in before.waiting if rank != view.rank)
        self.samples = SampledStacks(tuple(ranks), waiting, before.since_ns)


def frames_of(text: str) -> tuple[str, ...]:
    """The frames of a stack in py-spy's format, the thread's name first."""
    thread, _, rest = text.partition(";")
    known = _THREAD.match(thread)
    if known is None:
        return tuple(text.split(";"))
    return (known[1] or "thread without a name", *rest.split(";"))


FOLLOWERS: Final = (StackSampling,)

"""Has the stacks of ranks sampled, from outside, and keeps what came of it."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from functools import partial
from typing import Final

from frtop_probe import wire
from frtop_probe.features.flame.messages import SampleResponse, SampleStacks
from frtop_tui.connect.followers import Follower
from frtop_tui.connect.request_tracker import RequestTracker
from frtop_tui.diagnosis.model import Frame, JudgedRank
from frtop_tui.features.flame.model import RankSamples, SampledStacks

_THREAD: Final = re.compile(r"^thread \((?:0x)?[0-9A-Fa-f]+\)(?:: (.*))?$")


class StackSampling(Follower):
    """`samples` is replaced, never changed."""

    name = "flame"
    nothing = SampledStacks()

    def __init__(self, tracker: RequestTracker) -> None:
        super().__init__(tracker)
        self._todo: dict[str, deque[tuple[JudgedRank, int]]] = {}
        self._under_way: dict[str, int] = {}
        self._found: dict[int, RankSamples] = {}
        self._waiting: list[int] = []
        self._round = 0
        self._since_ns = 0
        self.samples = SampledStacks()

    @property
    def news(self) -> SampledStacks:
        return self.samples

    def take(self, order: tuple[int, ...], frame: Frame | None, now: int) -> None:
        """Samples the stacks of these ranks."""
        self.sample(frame, order, now)

    def sample(self, frame: Frame | None, ranks: Iterable[int], now: int) -> None:
        """Asks for the stacks of these ranks, as many as allowed; forgets earlier ones."""
        self._round += 1
        self._todo, self._found, self._since_ns = {}, {}, now
        self._under_way = {}
        views = [frame.ranks[rank] for rank in ranks if rank in frame.ranks] if frame else []
        for view in views[: SampleStacks.most_ranks]:
            agent = self._tracker.agent(view.host)
            self._todo.setdefault(view.host, deque()).append((view, agent))
        for view in views[SampleStacks.most_ranks :]:
            text = f"{SampleStacks.most_ranks} ranks are sampled at a time"
            self._found[view.rank] = RankSamples(view.rank, text=text)
        self._waiting = [view.rank for view in views[: SampleStacks.most_ranks]]
        self._publish()
        self._ask(now)

    def _ask(self, now: int) -> None:
        """Asks the next ranks of each host."""
        for host, todo in self._todo.items():
            while todo and self._under_way.get(host, 0) < SampleStacks.at_once:
                view, agent = todo.popleft()
                self._under_way[host] = self._under_way.get(host, 0) + 1
                request = SampleStacks(0, view.key)
                received = partial(self._received, view, self._round)
                self._tracker.request(host, request, received, now, agent=agent)

    def _received(self, view: JudgedRank, number: int, response: wire.Response, now: int) -> None:
        if number != self._round:
            return
        self._under_way[view.host] -= 1
        if isinstance(response, SampleResponse):
            stacks = tuple((frames_of(text), count) for text, count in response.stacks if count > 0)
            found = RankSamples(
                view.rank,
                stacks,
                response.seconds,
                response.rate,
                response.missed,
                response.help or response.note,
            )
        else:
            text = response.text if isinstance(response, wire.Error) else "an unexpected answer"
            found = RankSamples(view.rank, text=text)
        self._found[view.rank] = found
        self._waiting.remove(view.rank)
        self._publish()
        self._ask(now)

    def _publish(self) -> None:
        ranks = tuple(self._found[rank] for rank in sorted(self._found))
        self.samples = SampledStacks(ranks, tuple(self._waiting), self._since_ns)


def frames_of(text: str) -> tuple[str, ...]:
    """The frames of a stack as py-spy writes it, the name of its thread first."""
    thread, _, rest = text.partition(";")
    known = _THREAD.match(thread)
    if known is None:
        return tuple(text.split(";"))
    return (known[1] or "thread without a name", *rest.split(";"))


FOLLOWERS: Final = (StackSampling,)

"""Which looks are wanted of which host, and which answers are still owed.

At most one request of a kind is under way at a host, so that a slow one is not buried
under what it cannot answer; what could not be sent now is kept for the next turn. A host
that has let an answer fall due is given twice the time for the next one.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from frtop_probe import wire
from frtop_tui.diagnosis.look_requests import LookRequest
from frtop_tui.diagnosis.model import Frame
from frtop_tui.sources.errands import Errands
from frtop_tui.sources.line import Line
from frtop_tui.sources.timing import Timing

ANSWER_NS: Final = 3_000_000_000
"""After this an answer is taken for lost, and asked for again."""
MOST_ANSWER_NS: Final = 30_000_000_000
"""The same for a host behind a slow link, where asking again makes it only slower."""
WATCH_NS: Final = 500_000_000
WATCH_STACKS_NS: Final = 1_000_000_000
WATCHED_OPS: Final = 256
JUDGED_OPS: Final = 32


class Asking:
    """Belongs to the source's thread."""

    def __init__(self, line: Line, *, read_only: bool = False) -> None:
        self._line = line
        self._read_only = read_only
        self._ids = itertools.count(1)
        self.errands = Errands(line, self._ids)
        self.timing = Timing(line, self._ids)
        self._patience: dict[str, int] = {}  # place -> how long an answer may take, if longer
        self._states: dict[str, tuple[int, int]] = {}
        """Number of the request for a place's state, and when."""
        self._looks: dict[tuple[str, str, bool], tuple[int, int]] = {}
        """By place, purpose and stacks: number of the request, and when."""
        self._watched: frozenset[int] = frozenset()
        self._watched_at = self._stacks_at = 0
        self._to_dump: frozenset[int] = frozenset()
        self._wanted: dict[tuple[str, int, bool], LookRequest] = {}

    def watch(self, ranks: frozenset[int]) -> None:
        self._watched = ranks
        self._watched_at = self._stacks_at = 0

    def dump(self, ranks: frozenset[int]) -> None:
        self._to_dump |= ranks

    def want(self, wanted: Iterable[LookRequest]) -> None:
        """What the diagnosis needs to see before it can say more."""
        self._wanted |= {(one.host, one.key, one.stacks): one for one in wanted}

    def state(self, place: str, now: int, *, anew: bool = False) -> None:
        """Asks for everything an agent knows; with `anew` though an answer is owed."""
        owed = self._states.get(place)
        if owed is not None and not anew and not self._late(place, owed[1], now):
            return
        number = next(self._ids)
        if self._line.ask(place, wire.StateRequest(number, self._read_only)):
            self._states[place] = number, now

    def state_later(self, place: str, now: int) -> None:
        """As if it had been asked for now, and the answer lost: for one that made no sense."""
        self._states.setdefault(place, (next(self._ids), now))

    def is_state(self, place: str, number: int) -> bool:
        """Whether this answer is about a request for a state."""
        return place in self._states and self._states[place][0] == number

    def forget(self, place: str) -> None:
        """The connection was lost, and all answers with it."""
        self._states.pop(place, None)
        self._looks = {debt: asked for debt, asked in self._looks.items() if debt[0] != place}
        self._patience.pop(place, None)
        self.errands.forget(place)
        self.timing.forget(place)

    def settle(self, place: str, answer: wire.Response, now: int) -> None:
        self.errands.settle(place, answer, now)
        if isinstance(answer, wire.StateResponse):
            owed = self._states.pop(place, None)
            if owed is not None:
                self._took(place, now - owed[1])
            return
        for debt, (number, when) in list(self._looks.items()):
            if debt[0] == place and number == answer.id:
                del self._looks[debt]
                self._took(place, now - when)

    def _late(self, place: str, since: int, now: int) -> bool:
        """Whether an answer should have come; then the next one may take longer."""
        patience = self._patience.get(place, ANSWER_NS)
        if now - since < patience:
            return False
        self._patience[place] = min(2 * patience, MOST_ANSWER_NS)
        return True

    def _took(self, place: str, took: int) -> None:
        if 2 * took > ANSWER_NS:
            self._patience[place] = min(2 * took, MOST_ANSWER_NS)
        else:
            self._patience.pop(place, None)

    def turn(self, frame: Frame | None, now: int) -> None:
        """Asks for what is wanted or overdue."""
        for place in list(self._states):
            self.state(place, now)
        self.errands.turn(now)
        self.timing.turn(now)
        if frame is None:
            return
        if self._watched and now - self._watched_at >= WATCH_NS:
            stacks = now - self._stacks_at >= WATCH_STACKS_NS
            if not self._ask("watch", _looks_at(frame, self._watched, stacks), now, WATCHED_OPS):
                self._watched_at = now
                self._stacks_at = now if stacks else self._stacks_at
        if self._to_dump:
            unsent = self._ask("dump", _looks_at(frame, self._to_dump, stacks=True), now)
            keys = {(one.host, one.key) for one in unsent}
            self._to_dump = frozenset(
                rank
                for rank in self._to_dump
                if (view := frame.ranks.get(rank)) is not None and (view.host, view.key) in keys
            )
        if self._wanted:
            unsent = self._ask("judge", tuple(self._wanted.values()), now)
            self._wanted = {(one.host, one.key, one.stacks): one for one in unsent}

    def _ask(
        self, purpose: str, wanted: Iterable[LookRequest], now: int, ops: int = JUDGED_OPS
    ) -> list[LookRequest]:
        """One request per host and kind; gives back what could not be asked now."""
        kinds: dict[tuple[str, bool], list[LookRequest]] = defaultdict(list)
        for one in wanted:
            kinds[one.host, one.stacks].append(one)
        unsent: list[LookRequest] = []
        for (host, stacks), ones in kinds.items():
            debt = host, purpose, stacks
            owed = self._looks.get(debt)
            number = next(self._ids)
            question = wire.SnapshotRequest(
                number,
                keys=tuple(one.key for one in ones),
                stacks=stacks,
                ops=ops,
                pids=tuple(pid for one in ones for pid in one.pids),
            )
            free = owed is None or self._late(host, owed[1], now)
            if free and self._line.ask(host, question):
                self._looks[debt] = number, now
            else:
                unsent += ones
        return unsent


def _looks_at(frame: Frame, ranks: Iterable[int], stacks: bool) -> tuple[LookRequest, ...]:
    return tuple(
        LookRequest(view.host, view.key, (), stacks)
        for rank in ranks
        if (view := frame.ranks.get(rank)) is not None
    )

"""Questions of which somebody awaits the answer: each one ends, with it or with a reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from msgspec import structs

from frtop_probe import wire
from frtop_tui.sources.line import Line

PATIENCE_NS: Final = 8_000_000_000
"""The agent itself gives a rank two seconds; the rest is for the way there and back."""
BUSY_AGAIN_NS: Final = 300_000_000

Then = Callable[[wire.Response, int], None]
"""Takes the answer, or a refusal of ours, and our time."""


@dataclass(slots=True)
class _Errand:
    place: str
    question: wire.Request
    then: Then
    until_ns: int
    seconds: float
    due_ns: int = 0
    sent: bool = False
    stale: bool = False  # about ranks as another agent numbered them


class Errands:
    """Belongs to the source's thread. `ids` are shared with everything else that is asked.

    Ranks are asked for by the keys that an agent gave them. One that was started anew gives
    others: what was meant for the former must not reach it, or it tells of another rank.
    """

    def __init__(self, line: Line, ids: Iterator[int]) -> None:
        self._line = line
        self._ids = ids
        self._owed: dict[int, _Errand] = {}
        self._unsure: set[str] = set()
        """Places whose agent may be another one by now."""
        self._agents: Counter[str] = Counter()
        """How often the agent of a place was found to be another one."""

    def agent(self, place: str) -> int:
        """Which agent of a place is there now: to be given to `ask` with the keys it gave."""
        return self._agents[place]

    def ask(
        self,
        place: str,
        question: wire.Request,
        then: Then,
        now: int,
        patience: int = PATIENCE_NS,
        *,
        agent: int | None = None,
    ) -> int:
        """Asks, as soon as it can leave; `then` is called exactly once, unless dropped.

        An agent that is busy is asked again. When nothing came in time, `then` gets a
        `Error` with the reason "deadline".
        """
        number = next(self._ids)
        question = structs.replace(question, id=number)
        errand = _Errand(place, question, then, now + patience, patience / 1e9)
        self._owed[number] = errand
        errand.stale = agent is not None and agent != self._agents[place]
        errand.sent = self._send(errand)
        return number

    def drop(self, number: int) -> None:
        """Nobody awaits this answer any more."""
        self._owed.pop(number, None)

    def settle(self, place: str, answer: wire.Response, now: int) -> None:
        """An answer has come from `place`; others than those awaited are left alone."""
        number = answer.id
        if isinstance(answer, wire.Error) and answer.reason == "words":
            # It did not even understand the number: of what was asked last, as a rule.
            sent = (n for n, e in self._owed.items() if e.place == place and e.sent)
            number = max(sent, default=0)
        errand = self._owed.get(number)
        if errand is None or errand.place != place or errand.stale:
            return
        if isinstance(answer, wire.Error) and answer.reason == "busy" and now < errand.until_ns:
            errand.sent, errand.due_ns = False, now + BUSY_AGAIN_NS
            return
        del self._owed[number]
        errand.then(answer, now)

    def forget(self, place: str) -> None:
        """The connection was lost, and all answers with it: what is owed is asked again."""
        self._unsure.add(place)
        for errand in self._owed.values():
            if errand.place == place:
                errand.sent = False

    def met(self, place: str, *, same: bool) -> None:
        """The agent of a place has said who it is: the `same` as before, or another."""
        self._unsure.discard(place)
        if not same:
            self._agents[place] += 1
            for errand in self._owed.values():
                errand.stale = errand.stale or errand.place == place

    def _send(self, errand: _Errand) -> bool:
        if errand.stale or errand.place in self._unsure:
            return False
        return self._line.ask(errand.place, errand.question)

    def turn(self, now: int) -> None:
        """Sends what could not leave before, and gives up what took too long."""
        for number, errand in list(self._owed.items()):
            if errand.stale:
                self._owed.pop(number, None)
                errand.then(wire.Error(number, _another(errand), "gone"), now)
            elif now >= errand.until_ns:
                self._owed.pop(number, None)
                errand.then(wire.Error(number, _late(errand), "deadline"), now)
            elif not errand.sent and now >= errand.due_ns:
                errand.sent = self._send(errand)


def _another(errand: _Errand) -> str:
    return f"the agent on {errand.place} was started anew meanwhile: ask again"


def _late(errand: _Errand) -> str:
    if not errand.sent:
        return f"{errand.place} cannot be reached: ask again when it is heard"
    return f"no answer from {errand.place} in {errand.seconds:.0f} s: ask again, it may be slow"

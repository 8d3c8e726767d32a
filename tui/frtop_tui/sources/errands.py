"""Questions of which somebody awaits the answer: each one ends, with it or with a reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from msgspec import structs

from frtop_probe import wire
from frtop_tui.sources.line import Line

PATIENCE_NS: Final = 8_000_000_000
"""The agent itself gives a rank two seconds; the rest is for the way there and back."""
BUSY_AGAIN_NS: Final = 300_000_000

Then = Callable[[wire.Answer, int], None]
"""Takes the answer, or a refusal of ours, and our time."""


@dataclass(slots=True)
class _Errand:
    place: str
    question: wire.Ask
    then: Then
    until_ns: int
    seconds: float
    due_ns: int = 0
    sent: bool = False


class Errands:
    """Belongs to the source's thread. `ids` are shared with everything else that is asked."""

    def __init__(self, line: Line, ids: Iterator[int]) -> None:
        self._line = line
        self._ids = ids
        self._owed: dict[int, _Errand] = {}

    def ask(
        self, place: str, question: wire.Ask, then: Then, now: int, patience: int = PATIENCE_NS
    ) -> int:
        """Asks, as soon as it can leave; `then` is called exactly once, unless dropped.

        An agent that is busy is asked again. When nothing came in time, `then` gets a
        `Refusal` with the reason "deadline".
        """
        number = next(self._ids)
        question = structs.replace(question, id=number)
        errand = _Errand(place, question, then, now + patience, patience / 1e9)
        self._owed[number] = errand
        errand.sent = self._line.ask(place, question)
        return number

    def drop(self, number: int) -> None:
        """Nobody awaits this answer any more."""
        self._owed.pop(number, None)

    def settle(self, place: str, answer: wire.Answer, now: int) -> None:
        """An answer has come from `place`; others than those awaited are left alone."""
        number = answer.id
        if isinstance(answer, wire.Refusal) and answer.reason == "words":
            # It did not even understand the number: of what was asked last, as a rule.
            sent = (n for n, e in self._owed.items() if e.place == place and e.sent)
            number = max(sent, default=0)
        errand = self._owed.get(number)
        if errand is None or errand.place != place:
            return
        if isinstance(answer, wire.Refusal) and answer.reason == "busy" and now < errand.until_ns:
            errand.sent, errand.due_ns = False, now + BUSY_AGAIN_NS
            return
        del self._owed[number]
        errand.then(answer, now)

    def forget(self, place: str) -> None:
        """The connection was lost, and all answers with it: what is owed is asked again."""
        for errand in self._owed.values():
            if errand.place == place:
                errand.sent = False

    def turn(self, now: int) -> None:
        """Sends what could not leave before, and gives up what took too long."""
        for number, errand in list(self._owed.items()):
            if now >= errand.until_ns:
                self._owed.pop(number, None)
                errand.then(wire.Refusal(number, _late(errand), "deadline"), now)
            elif not errand.sent and now >= errand.due_ns:
                errand.sent = self._line.ask(errand.place, errand.question)


def _late(errand: _Errand) -> str:
    if not errand.sent:
        return f"{errand.place} cannot be reached: ask again when it is heard"
    return f"no answer from {errand.place} in {errand.seconds:.0f} s: ask again, it may be slow"

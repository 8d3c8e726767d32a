"""What is true of a program of the zoo, and whether what frtop says of it is.

Nothing that reasons ever sees a truth: verdicts are compared with it afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct

if TYPE_CHECKING:  # ranks import this, too
    from frtop_tui.diagnosis.judged import Frame, Verdict

Mode = Literal["sync", "late", "sync slowly", "late slowly"]
"""Late: all ops are asynchronous and waited for late. Slowly: see `rank.Job.paced`."""
WRONG: Final = frozenset({"hung", "dead", "diverged"})
"""What the job of a healthy control must never be called."""


class Truth(Struct, frozen=True):
    """One root cause. Of `kinds`, `causes` and `progress` any one that is listed is right.

    `says` are words that the verdict's text has to contain. `suspected` tells why it can be
    no more than a suspicion: then nobody waits for it to be confirmed.
    """

    kinds: tuple[str, ...]
    culprits: tuple[int, ...] = ()
    parties: tuple[tuple[int, ...], ...] = ()
    causes: tuple[str, ...] = ()
    progress: tuple[str, ...] = ("none",)
    says: tuple[str, ...] = ()
    suspected: str = ""

    def named(self, verdict: Verdict) -> bool:
        """Whether a verdict says who and why; how it gets on may not be known yet."""
        return not self._misnamed(verdict)

    def fits(self, verdict: Verdict) -> bool:
        """Whether all of a verdict is right, but for being confirmed."""
        return not self.amiss(verdict)

    def amiss(self, verdict: Verdict) -> list[str]:
        """What of a verdict is not as it is; empty when it is right."""
        wrong = self._misnamed(verdict)
        if verdict.progress not in self.progress:
            wrong.append(f"progress {verdict.progress}, not {' or '.join(self.progress)}")
        text = _text_of(verdict)
        return wrong + [f"not a word of {word!r}" for word in self.says if word not in text]

    def _misnamed(self, verdict: Verdict) -> list[str]:
        wrong = []
        if verdict.kind not in self.kinds:
            wrong.append(f"kind {verdict.kind}, not {' or '.join(self.kinds)}")
        if set(verdict.culprits) != set(self.culprits):
            wrong.append(f"culprits {verdict.culprits}, not {self.culprits}")
        if self.parties and _sorted(verdict.parties) != _sorted(self.parties):
            wrong.append(f"parties {verdict.parties}, not {self.parties}")
        if self.causes and verdict.why.cause not in self.causes:
            wrong.append(f"cause {verdict.why.cause}, not {' or '.join(self.causes)}")
        return wrong


@dataclass(frozen=True, slots=True)
class Case:
    """A program and all that is true of it.

    Args:
        truths: its root causes; empty for a healthy control.
        ranks: how many it is written for.
        modes: those it runs in.
        within_s: how long after the freeze everything has to be said.
        lasts_s: how long a control is watched once it is seen (it may end by itself before).
        allowed: roots that a control may be said to have, as long as it is not called hung;
            it has to say when what it is about happens (`Job.frozen`).
        environment: what its ranks get, say a smaller ring.
        needs: what has to be there to run it ("root", "cpu cgroup", ...), else it is skipped.
    """

    truths: tuple[Truth, ...] = ()
    ranks: int = 4
    modes: tuple[Mode, ...] = ("sync", "late")
    within_s: float = 30.0
    lasts_s: float = 20.0
    allowed: tuple[Truth, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    needs: tuple[str, ...] = ()

    @property
    def healthy(self) -> bool:
        return not self.truths

    @property
    def guilty(self) -> frozenset[int]:
        """Ranks that may be named at all."""
        every = (*self.truths, *self.allowed)
        return frozenset(rank for truth in every for rank in truth.culprits)

    def told(self, verdicts: Sequence[Verdict]) -> bool:
        """Whether all roots are named, with their causes, and nothing else is said."""
        if len(verdicts) != len(self.truths):
            return False
        return all(any(truth.named(verdict) for verdict in verdicts) for truth in self.truths)

    def confirmed(self, verdicts: Sequence[Verdict]) -> bool:
        """Whether all of it is right, and all that can be confirmed is."""
        return self.told(verdicts) and all(
            any(
                truth.fits(verdict) and (truth.suspected or verdict.confidence == "confirmed")
                for verdict in verdicts
            )
            for truth in self.truths
        )

    def innocents(self, verdicts: Iterable[Verdict]) -> list[int]:
        """Ranks that are named without being guilty of anything."""
        return sorted({r for verdict in verdicts for r in verdict.culprits} - self.guilty)

    def slander(self, frame: Frame) -> str:
        """What is said and must not be at any time; "" for nothing."""
        return self._of_control(frame) if self.healthy else self._of_fault(frame)

    def _of_fault(self, frame: Frame) -> str:
        if innocent := self.innocents(frame.verdicts):
            return f"innocent {innocent} named: {headlines(frame.verdicts)}"
        if frame.health == "hung" and not any("none" in truth.progress for truth in self.truths):
            return f"called hung: {headlines(frame.verdicts)}"
        return ""

    def _of_control(self, frame: Frame) -> str:
        if frame.health in WRONG:
            return f"called {frame.health}: {headlines(frame.verdicts)}"
        for verdict in frame.verdicts:
            if not any(truth.fits(verdict) for truth in self.allowed):
                return f"said of it: {headlines([verdict])}"
        return ""

    def amiss(self, verdicts: Sequence[Verdict]) -> str:
        """Why `told` or `confirmed` is not so, in a line."""
        if not verdicts:
            return "nothing was said"
        wrong: list[str] = []
        for truth in self.truths:
            tries: list[list[str]] = [truth.amiss(verdict) for verdict in verdicts]
            if all(tries):
                nearest = min(tries, key=len)
                wrong += nearest
        if len(verdicts) != len(self.truths):
            wrong.append(f"{len(verdicts)} verdicts, not {len(self.truths)}")
        if not wrong and not self.confirmed(verdicts):
            wrong.append("never confirmed")
        return "; ".join(wrong) + f": {headlines(verdicts)}"


def headlines(verdicts: Iterable[Verdict]) -> str:
    """Verdicts in a line, for people."""
    return " | ".join(
        f"{v.kind} {v.confidence} {v.progress}: {v.headline}; {v.why.cause}: {v.why.text}"
        for v in verdicts
    )


def _sorted(parties: Iterable[Iterable[int]]) -> list[list[int]]:
    return sorted(sorted(party) for party in parties)


def _text_of(verdict: Verdict) -> str:
    return " ".join((verdict.headline, verdict.why.text, verdict.next, *verdict.evidence))

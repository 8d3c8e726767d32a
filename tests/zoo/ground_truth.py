"""The ground truth about a program of the zoo, and whether frtop's verdicts match it.

The diagnosis never sees a ground truth: verdicts are compared with it afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import Struct

if TYPE_CHECKING:  # ranks import this module, too
    from frtop_tui.diagnosis.model import Frame, Verdict

Mode = Literal["sync", "late", "sync slowly", "late slowly"]
"""Late: all ops are asynchronous, and the program waits late. Slowly: see `rank.Job.paced`."""
WRONG: Final = frozenset({"hung", "dead", "mismatch"})
"""Health values that a healthy control must never have."""

LATENESS: Final = 0.1
"""Share by which the size of a lateness that was found may be wrong."""


class Truth(Struct, frozen=True):
    """One root cause. Any listed value of `kinds`, `causes` and `progress` is right.

    `says` are words that the verdict's text must contain. `suspected` is the reason why frtop
    can only suspect it; then the verdict need not be confirmed. `late_ms` is by how much somebody
    who is slow is late; the verdict has to be within `LATENESS` of it.
    """

    kinds: tuple[str, ...]
    culprits: tuple[int, ...] = ()
    parties: tuple[tuple[int, ...], ...] = ()
    causes: tuple[str, ...] = ()
    progress: tuple[str, ...] = ("none",)
    says: tuple[str, ...] = ()
    suspected: str = ""
    late_ms: float | None = None

    def matches_cause(self, verdict: Verdict) -> bool:
        """Returns whether a verdict names culprits and cause; progress may still be unknown."""
        return not self._wrong_fields(verdict)

    def fits(self, verdict: Verdict) -> bool:
        """Returns whether a verdict is right, confirmed or not."""
        return not self.mistakes(verdict)

    def mistakes(self, verdict: Verdict) -> list[str]:
        """Returns what is wrong about a verdict; empty if it is right."""
        wrong = self._wrong_fields(verdict)
        if verdict.progress not in self.progress:
            wrong.append(f"progress {verdict.progress}, not {' or '.join(self.progress)}")
        wrong += self._wrong_size(verdict)
        text = _text_of(verdict)
        return wrong + [f"the text lacks {word!r}" for word in self.says if word not in text]

    def _wrong_size(self, verdict: Verdict) -> list[str]:
        if self.late_ms is None:
            return []
        found_ms = verdict.slow.late_ns / 1e6 if verdict.slow is not None else 0.0
        right = abs(found_ms - self.late_ms) <= LATENESS * self.late_ms
        return [] if right else [f"late by {found_ms:.1f} ms, not {self.late_ms:.0f}"]

    def _wrong_fields(self, verdict: Verdict) -> list[str]:
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


def truth(
    kinds: str | tuple[str, ...],
    culprits: int | tuple[int, ...] = (),
    causes: str | tuple[str, ...] = (),
    *,
    parties: tuple[tuple[int, ...], ...] = (),
    progress: str | tuple[str, ...] = "none",
    says: str | tuple[str, ...] = (),
    suspected: str = "",
    late_ms: float | None = None,
) -> Truth:
    """Returns a truth; where a field has one value, it may stand alone."""
    return Truth(
        _tuple(kinds), _tuple(culprits), parties, _tuple(causes), _tuple(progress), _tuple(says),
        suspected, late_ms,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Case:
    """A program and its ground truth.

    Args:
        truths: its root causes; empty for a healthy control.
        ranks: number of ranks.
        modes: the modes in which it runs.
        within_s: deadline for all verdicts, in s after the fault.
        lasts_s: how long a control is observed after it is first seen (it may end earlier).
        allowed: root causes that frtop may report for a control if it does not call it hung;
            the control must mark when they happen (`Job.mark_fault`). Of a fault, what it may
            report instead of the truth where nothing is recorded.
        environment: extra environment variables of its ranks, such as a smaller ring.
        needs: requirements ("root", "cpu cgroup", ...) without which it is skipped.
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
    def culprits(self) -> frozenset[int]:
        """All ranks that a verdict may name."""
        every = (*self.truths, *self.allowed)
        return frozenset(rank for truth in every for rank in truth.culprits)

    def identified(self, verdicts: Sequence[Verdict]) -> bool:
        """Returns whether verdicts name exactly the root causes, with culprits and causes."""
        if len(verdicts) != len(self.truths):
            return False
        return all(
            any(truth.matches_cause(verdict) for verdict in verdicts) for truth in self.truths
        )

    def confirmed(self, verdicts: Sequence[Verdict]) -> bool:
        """Returns whether all verdicts are right, and confirmed where that is possible."""
        return self.identified(verdicts) and all(
            any(
                truth.fits(verdict) and (truth.suspected or verdict.confidence == "confirmed")
                for verdict in verdicts
            )
            for truth in self.truths
        )

    def innocents(self, verdicts: Iterable[Verdict]) -> list[int]:
        """Returns ranks that verdicts name wrongly."""
        return sorted({r for verdict in verdicts for r in verdict.culprits} - self.culprits)

    def false_claim(self, frame: Frame) -> str:
        """Returns a claim that is wrong at any time; "" if there is none."""
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
                return f"false verdict: {headlines([verdict])}"
        return ""

    def mistakes(self, verdicts: Sequence[Verdict]) -> str:
        """Returns why `identified` or `confirmed` is false, in one line."""
        if not verdicts:
            return "no verdict"
        wrong: list[str] = []
        for truth in self.truths:
            tries: list[list[str]] = [truth.mistakes(verdict) for verdict in verdicts]
            if all(tries):
                nearest = min(tries, key=len)
                wrong += nearest
        if len(verdicts) != len(self.truths):
            wrong.append(f"{len(verdicts)} verdicts, not {len(self.truths)}")
        if not wrong and not self.confirmed(verdicts):
            wrong.append("never confirmed")
        return "; ".join(wrong) + f": {headlines(verdicts)}"


def fault(*of_truth: Any, **fields: Any) -> Case:
    """Returns the case of one root cause: arguments of `truth`, and fields of `Case`."""
    of_case = {name: fields.pop(name) for name in Case.__slots__ if name in fields}
    return Case((truth(*of_truth, **fields),), **of_case)


def slow(
    culprit: int, causes: str | tuple[str, ...] = ("compute", "starved"), **fields: Any
) -> Case:
    """Returns the case of a rank that is late in every step of a job with synchronous ops."""
    fields = {"progress": "active", "modes": ("sync",), "within_s": 60, **fields}
    return fault("slow", culprit, causes, **fields)


def headlines(verdicts: Iterable[Verdict]) -> str:
    """Returns verdicts in one line."""
    return " | ".join(
        f"{v.kind} {v.confidence} {v.progress}: {v.headline}; {v.why.cause}: {v.why.text}"
        for v in verdicts
    )


def _tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def _sorted(parties: Iterable[Iterable[int]]) -> list[list[int]]:
    return sorted(sorted(party) for party in parties)


def _text_of(verdict: Verdict) -> str:
    return " ".join((verdict.headline, verdict.why.text, verdict.next, *verdict.evidence))

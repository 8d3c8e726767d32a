"""Ground truths, verdicts and outcomes in a few words, for the zoo's table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from frtop_probe.ring.rank_ranges import fold

if TYPE_CHECKING:
    from frtop_tui.diagnosis.model import Verdict
    from zoo.ground_truth import Case, Truth

NOTHING = "nothing"


def truth_text(case: Case) -> str:
    """Returns the ground truth: kind, ranks, cause and progress of every root cause."""
    if case.healthy and not case.allowed:
        return "healthy"
    if case.healthy:
        return f"healthy; may be called {_joined(map(_truth, case.allowed))}"
    return _joined(map(_truth, case.truths))


def verdict_text(verdicts: Sequence[Verdict]) -> str:
    """Returns the verdicts in the same form."""
    if not verdicts:
        return NOTHING
    return _joined(
        _line(v.kind, ranks_text(v.culprits, v.parties), v.why.cause, v.progress)
        + ("" if v.confidence == "confirmed" else ", suspect")
        for v in verdicts
    )


def blame_text(named: Iterable[int], case: Case) -> str:
    """Returns which ranks another tool blames, and how many of them are innocent."""
    ranks = set(named)
    if not ranks:
        return NOTHING
    parties = (party for truth in case.truths for party in truth.parties)
    involved = case.culprits.union(*parties)
    innocent = ranks - involved
    return f"blames {fold(ranks)}" + (f" ({len(innocent)} innocent)" if innocent else "")


def ranks_text(culprits: Iterable[int], parties: Iterable[Iterable[int]] = ()) -> str:
    """Returns the culprits (`1`), or the parties if no side is to blame (`0-1 vs 2-3`)."""
    named = fold(culprits)
    return named or " vs ".join(fold(party) for party in parties) or "nobody"


def _truth(truth: Truth) -> str:
    suffix = ", suspect" if truth.suspected else ""
    ranks = ranks_text(truth.culprits, truth.parties)
    return _line("/".join(truth.kinds), ranks, "/".join(truth.causes), "/".join(truth.progress)) + (
        suffix
    )


def _line(kind: str, ranks: str, cause: str, progress: str) -> str:
    """Words one cause; progress only for kinds that may continue."""
    details = [cause] if cause else []
    if kind.startswith(("not_entered", "stuck", "slow", "undecided")):
        details.append(progress)
    return f"{kind} {ranks}" + (f": {', '.join(details)}" if details else "")


def _joined(texts: Iterable[str]) -> str:
    return " + ".join(sorted(texts))

"""What gloo's recorder cannot tell: who waits in a send or receive, which it does not know.

To it such a rank has finished all that it issued, like one that stays away. One of these is
a suspect; of several in groups of their own, some may only wait for another, and in which
order is in no dump. Then nobody is named.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from frtop_probe.ring.fold import fold, unfold
from frtop_tui.job.model import Frame, RankView, Verdict, Why
from frtop_tui.job.naming import folded

_GLOO: Final = "gloo"


def withheld(frame: Frame) -> Frame:
    """The frame with one undecided verdict in the place of several that may follow from another."""
    doubtful = [verdict for verdict in frame.verdicts if _is_doubtful(verdict, frame.ranks)]
    if len(doubtful) < 2:
        return frame
    rest = [verdict for verdict in frame.verdicts if verdict not in doubtful]
    health = frame.health if rest else "undecided"
    return replace(frame, health=health, verdicts=(*rest, _brought_together(doubtful)))


def _is_doubtful(verdict: Verdict, ranks: Mapping[int, RankView]) -> bool:
    """Whether all it says of its culprits is that nothing of theirs is unfinished."""
    views = [ranks[rank] for rank in verdict.culprits if rank in ranks]
    return (
        verdict.kind == "not_entered"
        and verdict.why.cause == "unknown"
        and bool(views)
        and all(view.dumped and _is_gloo(view) and not view.threads for view in views)
    )


def _is_gloo(view: RankView) -> bool:
    return any(_GLOO in group.backend for group in view.groups.values())


def _brought_together(verdicts: list[Verdict]) -> Verdict:
    first = verdicts[0]
    absent = sorted({rank for verdict in verdicts for rank in verdict.culprits})
    victims = {rank for verdict in verdicts for rank in unfold(verdict.victims)}
    text = (
        f"any of {folded(absent)} may be the one to blame: the others may wait in a send or "
        "receive, and gloo's recorder knows none"
    )
    return replace(
        first,
        kind="undecided",
        confidence="suspect",
        progress="unknown",
        culprits=(),
        headline=f"{folded(absent)} have not entered what {folded(victims)} wait for; {text}",
        why=Why("unknown", "unknown", text),
        next=f"look at the stacks of {folded(absent)}: py-spy dump --pid PID on their hosts",
        victims=fold(victims),
        evidence=tuple(verdict.headline for verdict in verdicts),
    )

"""What dumps cannot tell of ranks that have finished all they issued, and are waited for.

Where these are more than those who wait, the few may as well be the odd ones: ahead, or in
something that was not for them. And gloo's recorder knows no sends and receives: of several
such ranks, in groups of their own, some may only wait for another, and in which order is in no
dump. Then nobody is named.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from frtop_tui.diagnosis.model import Frame, JudgedRank, Verdict, Why
from frtop_tui.job.naming import folded

_GLOO: Final = "gloo"
_STACKS: Final = "py-spy dump --pid PID on their hosts"


def withheld(frame: Frame) -> Frame:
    """The frame without names that are not justified: undecided in their place."""
    bare = [verdict for verdict in frame.verdicts if _is_bare(verdict, frame.ranks)]
    many = [verdict for verdict in bare if _are_more(verdict)]
    several = [
        verdict for verdict in bare if verdict not in many and _is_gloo(verdict, frame.ranks)
    ]
    if len(several) == 1:
        several = []
    if not many and not several:
        return frame
    changed = [*map(_turned_round, many), *([_brought_together(several)] if several else ())]
    rest = [verdict for verdict in frame.verdicts if verdict not in (*many, *several)]
    health = frame.health if rest else "undecided"
    return replace(frame, health=health, verdicts=(*rest, *changed))


def _is_bare(verdict: Verdict, ranks: Mapping[int, JudgedRank]) -> bool:
    """Whether all it says of its culprits is that nothing of theirs is unfinished."""
    views = [ranks[rank] for rank in verdict.culprits if rank in ranks]
    return (
        verdict.kind == "not_entered"
        and verdict.why.cause == "unknown"
        and bool(views)
        and all(not (view.evidence.has_process or view.threads) for view in views)
    )


def _are_more(verdict: Verdict) -> bool:
    return len(verdict.culprits) > len(verdict.victims) > 0


def _is_gloo(verdict: Verdict, ranks: Mapping[int, JudgedRank]) -> bool:
    views = (ranks[rank] for rank in verdict.culprits if rank in ranks)
    return all(any(_GLOO in group.backend for group in view.groups.values()) for view in views)


def _turned_round(verdict: Verdict) -> Verdict:
    absent, few = verdict.culprits, tuple(sorted(verdict.victims))
    text = (
        f"{folded(few)} may as well be ahead, or where nobody else has to come: most of the"
        " group is not there, and nothing tells why"
    )
    return replace(
        verdict,
        kind="undecided",
        confidence="suspect",
        progress="unknown",
        culprits=(),
        parties=(absent, few),
        headline=f"{verdict.headline}; {text}",
        why=Why("unknown", "unknown", text),
        next=f"compare the calls of rank {few[0]} with those of rank {absent[0]}; {_STACKS}",
        victims=frozenset({*absent, *few}),
    )


def _brought_together(verdicts: list[Verdict]) -> Verdict:
    first = verdicts[0]
    absent = sorted({rank for verdict in verdicts for rank in verdict.culprits})
    victims = {rank for verdict in verdicts for rank in verdict.victims}
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
        next=f"look at the stacks of {folded(absent)}: {_STACKS}",
        victims=frozenset(victims),
        evidence=tuple(verdict.headline for verdict in verdicts),
    )

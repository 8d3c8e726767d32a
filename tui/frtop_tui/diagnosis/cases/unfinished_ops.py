"""Ops that files show as unfinished, with nothing else wrong: undecided.

That no rank is seen to wait proves little: a wait in C++ has no Python frame, and other ranks'
dumps may have nothing unfinished. In a live job ops are always pending.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from frtop_probe import wire
from frtop_tui.diagnosis.blocked.group_frontier import last_issued_number
from frtop_tui.diagnosis.cases.context import Context
from frtop_tui.diagnosis.cases.declare import Case, Kind, Rule
from frtop_tui.diagnosis.cases.stacks_alone.words import stack_texts
from frtop_tui.diagnosis.cases.stuck.words import AGAIN
from frtop_tui.diagnosis.finding import Detail, Finding
from frtop_tui.diagnosis.model import Sentences, Why
from frtop_tui.diagnosis.words.phrases import Tense, named_op
from frtop_tui.job.groups import members_of
from frtop_tui.job.model import BaseFrame, Health, Rank
from frtop_tui.job.naming import folded

_MOST_OPS: Final = 8
_NATIVE: Final = "py-spy dump --native --pid PID on their hosts: it shows waits in C++"
_OPEN: Final = frozenset[Health]({"healthy", "undecided", "starting", "dead", "ended"})
"""Healths before the diagnosis to which such ops add something."""


class UnfinishedOps(Detail, frozen=True):
    """`ranks` as in their files, with unfinished ops as `pending`."""

    ranks: tuple[Rank, ...]


def detect(context: Context) -> list[Finding]:
    """One finding if any op is unfinished; for frames without any other finding."""
    recorded = context.frame.recorded
    if recorded is None or not recorded.unfinished or context.frame.health not in _OPEN:
        return []
    return [
        Finding(
            kind="undecided",
            detail=UnfinishedOps(tuple(recorded.unfinished.values())),
            key=("unfinished", *recorded.unfinished),
            progress="unknown",
        )
    ]


def unfinished_ops(
    _finding: Finding, detail: UnfinishedOps, frame: BaseFrame, _tense: Tense
) -> Sentences:
    """Which ranks have not issued which op, which ops are unfinished, why that proves nothing."""
    ranks = detail.ranks
    seen = [rank.rank for rank in ranks if rank.threads]
    reason = "dumps do not show whether that lasts, and no rank is seen waiting for it"
    if seen:
        reason = (
            f"the stacks of {folded(seen)} show no wait for them, but a wait"
            " in C++ has no Python frame"
        )
    again = any(rank.prior_snapshot is not None for rank in ranks)
    return Sentences(
        f"ops of {folded(rank.rank for rank in ranks)} are unfinished; {reason}",
        Why.of("unknown", reason),
        _NATIVE if seen or again else AGAIN,
        (
            *_not_issued_texts(ranks, frame.ranks),
            *_unfinished_texts(ranks),
            *stack_texts(frame.ranks.values()),
        ),
    )


def _not_issued_texts(ranks: Sequence[Rank], views: Mapping[int, Rank]) -> list[str]:
    """`rank 2 has not issued all_reduce #6 of default_pg`, for the oldest op of each group."""
    found: dict[str, list[int]] = {}
    for rank in ranks:
        heads: dict[int, wire.Op] = {}
        for op in rank.pending:
            if not op.p2p:
                heads.setdefault(op.group, op)
        for op in heads.values():
            group = rank.groups[op.group]
            text = named_op(op, group)
            if text not in found and group.exact:
                found[text] = [
                    member
                    for member in members_of(group.ranks)
                    if member in views
                    and views[member].group_progress
                    and views[member].state != "unreachable"
                    and last_issued_number(views[member], group) < op.number
                ]
    lines = [
        f"{folded(those)} {Tense.PRESENT.has(those)} not issued {text}"
        for text, those in found.items()
        if those
    ]
    return lines[:_MOST_OPS]


def _unfinished_texts(ranks: Sequence[Rank]) -> list[str]:
    """`ranks 0-3: all_reduce #6 of default_pg`; the oldest of each group first."""
    found: dict[str, set[int]] = {}
    later: dict[str, set[int]] = {}
    for rank in ranks:
        heads = set()
        for op in rank.pending:
            head = (op.group, op.p2p)
            lines = later if head in heads else found
            heads.add(head)
            peer = op.signature.peer if op.signature is not None else None
            text = named_op(op, rank.groups[op.group], peer)
            lines.setdefault(text, set()).add(rank.rank)
    for text, those in later.items():
        found.setdefault(text, set()).update(those)
    shown = [f"{folded(those)}: {text}" for text, those in list(found.items())[:_MOST_OPS]]
    more = len(found) - len(shown)
    return [*shown, f"and {more} more unfinished ops"] if more else shown


UNFINISHED_OPS: Final = Case((Kind(UnfinishedOps, unfinished_ops, (Rule("never"),)),))

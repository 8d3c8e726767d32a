"""Words for ops that files say are unfinished."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from frtop_probe import wire
from frtop_tui.diagnosis.detectors.unfinished_ops import UnfinishedOps
from frtop_tui.diagnosis.finding import Finding
from frtop_tui.diagnosis.model import Sentences, Why
from frtop_tui.diagnosis.wording.tense import Tense
from frtop_tui.job.model import BaseFrame, Rank
from frtop_tui.job.naming import folded, group_label

_MOST_SHOWN: Final = 8
_AGAIN: Final = "dump again some seconds later: what is unfinished in both does not move"
_NATIVE: Final = "py-spy dump --native --pid PID on their hosts: a wait in C++ is seen there"


def unfinished_ops(
    _finding: Finding, detail: UnfinishedOps, _frame: BaseFrame, _tense: Tense
) -> Sentences:
    """Which ops are unfinished, and why that proves nothing."""
    ranks = detail.ranks
    seen = [rank.rank for rank in ranks if rank.threads]
    reason = "dumps do not tell whether that lasts, and nobody is seen to wait for it"
    if seen:
        reason = (
            f"in the stacks of {folded(seen)} no wait for them is seen:"
            " C++ that waits shows no Python frame"
        )
    again = any(rank.prior_snapshot is not None for rank in ranks)
    return Sentences(
        f"ops of {folded(rank.rank for rank in ranks)} are unfinished; {reason}",
        Why("unknown", "unknown", reason),
        _NATIVE if seen or again else _AGAIN,
        tuple(_texts(ranks)),
    )


def _texts(ranks: Sequence[Rank]) -> list[str]:
    """`ranks 0-3: all_reduce #6 of default_pg`; the oldest of each group first."""
    found: dict[str, set[int]] = {}
    later: dict[str, set[int]] = {}
    for rank in ranks:
        heads = set()
        for op in rank.pending:
            head = (op.group, op.p2p)
            lines = later if head in heads else found
            heads.add(head)
            lines.setdefault(_text(rank, op), set()).add(rank.rank)
    for text, those in later.items():
        found.setdefault(text, set()).update(those)
    shown = [f"{folded(those)}: {text}" for text, those in list(found.items())[:_MOST_SHOWN]]
    more = len(found) - len(shown)
    return [*shown, f"and {more} more unfinished ops"] if more else shown


def _text(rank: Rank, op: wire.Op) -> str:
    group, signature = rank.groups[op.group], op.signature
    number = f" #{op.number}" if group.exact and not op.p2p else ""
    kind, side = "an op", ""
    if signature is not None:
        kind = signature.kind
        if signature.peer is not None:
            side = f" {'from' if 'recv' in kind else 'to'} rank {signature.peer}"
    return f"{kind}{number}{side} of {group_label(group.name, group.description)}"

"""A job whose dumps tell of unfinished ops is never healthy: without a verdict, it is undecided.

That nobody is seen to wait proves little. A rank's stack may look elsewhere because C++ that
waits shows no Python frame, and others may have dumps in which nothing is. Only of dumps: in
a job that lives, ops are pending all the time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from frtop_probe import wire
from frtop_tui.diagnosis.model import Frame, Verdict, Why
from frtop_tui.job.model import Health, Rank
from frtop_tui.job.naming import folded, group_label

MOST_TOLD: Final = 8
_FINE: Final[frozenset[Health]] = frozenset({"healthy", "starting", "waiting", "ended"})
_AGAIN: Final = "dump again some seconds later: what is unfinished in both does not move"
_NATIVE: Final = "py-spy dump --native --pid PID on their hosts: a wait in C++ is seen there"


def undecided(
    frame: Frame, views: Mapping[int, Rank], unfinished: Mapping[int, tuple[wire.Op, ...]]
) -> Frame:
    """The frame, undecided if nothing else is wrong with it and there are `unfinished` ops.

    `views` are the ranks as their dumps tell of them.
    """
    if not unfinished or frame.verdicts or frame.health not in _FINE:
        return frame
    ranks = folded(unfinished)
    seen = [rank for rank in unfinished if views[rank].threads]
    reason = "dumps do not tell whether that lasts, and nobody is seen to wait for it"
    if seen:
        reason = (
            f"in the stacks of {folded(seen)} no wait for them is seen:"
            " C++ that waits shows no Python frame"
        )
    again = any(views[rank].prior_snapshot is not None for rank in unfinished)
    verdict = Verdict(
        kind="undecided",
        confidence="suspect",
        progress="unknown",
        culprits=(),
        headline=f"ops of {ranks} are unfinished; {reason}",
        why=Why("unknown", "unknown", reason),
        next=_NATIVE if seen or again else _AGAIN,
        evidence=tuple(_texts(views, unfinished)),
    )
    return replace(frame, health="undecided", since_ns=0, verdicts=(verdict,))


def _texts(views: Mapping[int, Rank], unfinished: Mapping[int, tuple[wire.Op, ...]]) -> list[str]:
    """`ranks 0-3: all_reduce #6 of default_pg`; the oldest of each group first."""
    found: dict[str, set[int]] = {}
    later: dict[str, set[int]] = {}
    for rank, ops in unfinished.items():
        heads = set()
        for op in ops:
            head = (op.group, op.p2p)
            lines = later if head in heads else found
            heads.add(head)
            lines.setdefault(_text(views[rank], op), set()).add(rank)
    for text, ranks in later.items():
        found.setdefault(text, set()).update(ranks)
    told = [f"{folded(ranks)}: {text}" for text, ranks in list(found.items())[:MOST_TOLD]]
    more = len(found) - len(told)
    return [*told, f"and {more} more unfinished ops"] if more else told


def _text(view: Rank, op: wire.Op) -> str:
    group, signature = view.groups[op.group], op.signature
    number = f" #{op.number}" if group.exact and not op.p2p else ""
    kind, side = "an op", ""
    if signature is not None:
        kind = signature.kind
        if signature.peer is not None:
            side = f" {'from' if 'recv' in kind else 'to'} rank {signature.peer}"
    return f"{kind}{number}{side} of {group_label(group.name, group.description)}"

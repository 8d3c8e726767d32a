"""Words for ranks that wait for each other."""

from __future__ import annotations

from frtop_tui.diagnosis.detectors.deadlock import Deadlock
from frtop_tui.diagnosis.finding import Finding
from frtop_tui.diagnosis.model import Sentences, Why
from frtop_tui.diagnosis.wording.not_entered import callers_unknown
from frtop_tui.diagnosis.wording.phrases import (
    PAIR_MESSAGES,
    WRONG_ORDER,
    Tense,
    op_text,
    wait_evidence,
)
from frtop_tui.job.model import BaseFrame
from frtop_tui.job.naming import folded


def deadlock(finding: Finding, detail: Deadlock, frame: BaseFrame, tense: Tense) -> Sentences:
    """Who waits in what, and why that never ends."""
    waits = [f"{folded(ranks)} in {op_text(node)}" for ranks, node in detail.sides]
    odd, tags = finding.culprits, detail.tags
    why = "each needs the other first: groups are used in different orders"
    step = "use these groups in the same order on all of their ranks"
    if all(node.op.pseudo for node in detail.ring):
        why = "each needs the other first: groups are created in different orders"
        step = "create these groups in the same order on all ranks"
    if tags is not None:
        why = (
            f"each needs the other first: rank {tags.sender} sends with tag {tags.sent} what"
            f" rank {tags.receiver} receives with tag {tags.received}"
        )
        step = "give a send and its receive the same tag"
    elif any(node.op.p2p for node in detail.ring):
        why, step = WRONG_ORDER, PAIR_MESSAGES
    elif odd:
        first, last = detail.sides[0][0], detail.sides[-1][0]
        most = first if odd[0] in last else last
        step = (
            f"compare the calls of rank {odd[0]} with those of rank {most[0]}: one left out, one"
            " too many, or another order"
        )
    if odd:
        why += f"; of those that both need, only {folded(odd)} went elsewhere"
    missing = []
    if detail.uncertain is not None:
        ranks = folded(detail.uncertain.waiting)
        text = f"{ranks} may wait in something else: no stack says where"
        hosts = [wait.rank for wait in detail.uncertain.waits if wait.by_device]
        if hosts:
            text = f"the host of {folded(hosts)} may be at work, and not wait for its device"
        elif not detail.uncertain.op.p2p:
            text = f"{ranks} may wait for another thread than the one in the op"
        missing.append(text)
    if detail.members_unknown is not None:
        missing.append(callers_unknown(detail.members_unknown))
    return Sentences(
        f"they {tense.of('wait', 'waited')} for each other: {', '.join(waits[:3])}",
        Why("cycle", "software", why),
        step,
        tuple(wait_evidence(node, frame.now_ns) for node in detail.ring[:4]),
        tuple(missing),
    )

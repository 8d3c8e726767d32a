"""Words for ranks that wait for each other."""

from __future__ import annotations

from collections.abc import Sequence

from frtop_tui.diagnosis.detectors.deadlock import Deadlock, TagsDiffer
from frtop_tui.diagnosis.finding import Finding
from frtop_tui.diagnosis.model import Sentences, Why
from frtop_tui.diagnosis.wording.not_entered import callers_unknown
from frtop_tui.diagnosis.wording.phrases import op_text, wait_evidence
from frtop_tui.diagnosis.wording.tense import Tense
from frtop_tui.job.model import BaseFrame
from frtop_tui.job.naming import folded


def deadlock(finding: Finding, detail: Deadlock, frame: BaseFrame, tense: Tense) -> Sentences:
    """Who waits in what, and why that never ends."""
    waits = [f"{folded(ranks)} in {op_text(node)}" for ranks, node in detail.sides]
    messages = any(node.op.p2p for node in detail.ring)
    odd = finding.culprits
    order = "groups are used in different orders"
    if detail.tags is not None:
        order = _tags_text(detail.tags)
    elif messages:
        order = "sends and receives meet in the wrong order"
    more = f"; of those that both need, only {folded(odd)} went elsewhere" if odd else ""
    step = _order_step(odd, detail.sides[0][0], detail.sides[-1][0])
    if messages:
        step = "pair each send with a receive: on one of them the other first, or batch_isend_irecv"
        if detail.tags is not None:
            step = "give a send and its receive the same tag"
    missing = []
    if detail.uncertain is not None:
        ranks = folded(detail.uncertain.waiting)
        text = f"{ranks} may wait in something else: no stack says where"
        if not detail.uncertain.op.p2p:
            text = f"{ranks} may wait for another thread than the one in the op"
        missing.append(text)
    if detail.members_unknown is not None:
        missing.append(callers_unknown(detail.members_unknown))
    return Sentences(
        f"they {tense.of('wait', 'waited')} for each other: {', '.join(waits[:3])}",
        Why("cycle", "software", f"each needs the other first: {order}{more}"),
        step,
        tuple(line for node in detail.ring[:4] for line in wait_evidence(node, frame.now_ns)),
        tuple(missing),
    )


def _tags_text(tags: TagsDiffer) -> str:
    return (
        f"rank {tags.sender} sends with tag {tags.sent} what"
        f" rank {tags.receiver} receives with tag {tags.received}"
    )


def _order_step(odd: Sequence[int], first: Sequence[int], last: Sequence[int]) -> str:
    if not odd:
        return "use these groups in the same order on all of their ranks"
    most = first if odd[0] in last else last
    return (
        f"compare the calls of rank {odd[0]} with those of rank {most[0]}: one left out, one too"
        " many, or another order"
    )

"""Phrases that verdicts share: ranks, ops, ages, and lines of evidence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from frtop_probe import wire
from frtop_probe.consistency.signatures import SIZELESS
from frtop_tui.diagnosis.graph.wait_node import WaitNode, kind_of
from frtop_tui.diagnosis.wording.tense import Tense
from frtop_tui.job.model import Rank
from frtop_tui.job.naming import duration, folded, group_label
from frtop_tui.job.stack_frames import site_line

MOST_CHAINED: Final = 8
"""Nodes of a chain that are listed."""


def op_text(node: WaitNode) -> str:
    """`all_reduce #8812 of default_pg`."""
    number = f" #{node.number}" if node.number is not None else ""
    if node.group is None or node.op.pseudo:
        return f"{node.kind}{number}"
    peer = node.peer
    side = ""
    if node.op.p2p and peer is not None:
        side = f" {'from' if 'recv' in node.kind else 'to'} rank {peer}"
    label = group_label(node.group.name, node.group.description)
    return f"{node.kind}{number}{side} of {label}"


def who(views: Mapping[int, Rank], ranks: Sequence[int]) -> str:
    """`rank 2 (node4 pid 90077)`; several ranks without their places."""
    view = views.get(ranks[0]) if len(ranks) == 1 else None
    if view is not None and view.identity.pid:
        host = "" if view.host in ("", "local") else f"{view.host} "
        return f"rank {view.rank} ({host}pid {view.identity.pid})"
    return folded(ranks)


def at_line(op: wire.Op) -> str:
    return f" at {site_line(op.site)}" if op.site is not None else ""


def usual_text(op: wire.Op) -> str:
    usual = op.usual_ns / 1e9
    return duration(usual) if usual >= 1 else f"{usual * 1e3:.0f}ms"


def wait_evidence(node: WaitNode, now_ns: int) -> list[str]:
    oldest = node.oldest
    text = f"rank {oldest.rank} waits in {op_text(node)}"
    if oldest.undated:
        return [f"{text}{at_line(oldest.op)}; its dump does not tell for how long"]
    text += f" for {duration((now_ns - oldest.since_ns) / 1e9)}"
    if oldest.op.usual_count:
        text += f" (usually {usual_text(oldest.op)} there)"
    text += at_line(oldest.op)
    if not oldest.sure:
        text += "; seen from outside only, not by its stack"
    return [text]


def chain_evidence(nodes: Sequence[WaitNode]) -> list[str]:
    """How a wait at the first of `nodes` keeps others waiting elsewhere."""
    lines = []
    for node in nodes[1 : 1 + MOST_CHAINED]:
        awaited = {*node.free, *node.blocked_at}
        whom = f" for {folded(awaited)}" if awaited and not node.op.p2p else ""
        lines.append(f"{Tense.PRESENT.waits(node.waiting)} in {op_text(node)}{whom}")
    more = len(nodes) - 1 - len(lines)
    return [*lines, f"and more behind these: {more} ops that wait"] if more > 0 else lines


def last_op_evidence(views: Mapping[int, Rank], culprits: Sequence[int]) -> list[str]:
    """The last known op of each culprit."""
    lines = []
    for view in filter(None, map(views.get, culprits[:3])):
        known = [front.last for front in view.group_progress.values() if front.last is not None]
        if not known:
            continue
        last = max(known, key=lambda op: op.sequence)
        group = view.groups.get(last.group)
        of = f" of {group_label(group.name, group.description)}" if group is not None else ""
        exact = group is not None and group.exact and not last.p2p
        number = f" #{last.number}" if exact else ""
        lines.append(f"rank {view.rank} last issued {kind_of(last)}{number}{of}{at_line(last)}")
    return lines


def broken_evidence(views: Mapping[int, Rank], ranks: Iterable[int]) -> list[str]:
    """What the first of the followers raised."""
    for rank in sorted(ranks):
        view = views.get(rank)
        if view is not None and view.exception is not None:
            text = view.exception.text.strip().splitlines()
            return [f"then rank {rank}: {view.exception.kind}: {text[0][:160] if text else ''}"]
    return []


def cut(text: str) -> str:
    return text if len(text) <= 120 else f"{text[:119]}…"


def signature_text(signature: wire.Signature | None) -> str:
    """`all_reduce sum float32[1024]`, as in an evidence line."""
    if signature is None:
        return "an op of unknown signature"
    parts = [signature.kind]
    if signature.reduce:
        parts.append(signature.reduce)
    if signature.root is not None:
        parts.append(f"root {signature.root}")
    specs = signature.inputs or signature.outputs or ()
    if specs and signature.kind not in SIZELESS:
        shown = [f"{s.dtype}[{','.join(map(str, s.shape))}]" for s in specs[:2]]
        parts.append(" ".join(shown) + (" …" if len(specs) > 2 else ""))
    if signature.in_splits or signature.out_splits:
        parts.append(f"splits {_short(signature.in_splits)} out {_short(signature.out_splits)}")
    return " ".join(parts)


def _short(splits: tuple[int, ...] | None) -> str:
    if splits is None:
        return "?"
    return ",".join(map(str, splits[:8])) + (",…" if len(splits) > 8 else "")

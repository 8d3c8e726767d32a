"""Notes: what is worth knowing, and nothing to act on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from frtop_tui.diagnosis.blocked.patience import has_history
from frtop_tui.diagnosis.blocked.wait_deadlines import deadlines_of
from frtop_tui.diagnosis.cases.dead.detect import Aborted
from frtop_tui.diagnosis.cases.dead.roots import Deaths
from frtop_tui.diagnosis.cases.not_entered.withheld import absent
from frtop_tui.diagnosis.finding import Finding
from frtop_tui.diagnosis.graph.wait_node import WaitNode
from frtop_tui.diagnosis.words.phrases import Tense, at_line, op_text
from frtop_tui.job.naming import folded
from frtop_tui.job.units import timing
from frtop_tui.job.unprepared import age_words

_MOST_LISTED: Final = 3


def long_wait_texts(nodes: Sequence[WaitNode], now_ns: int) -> tuple[str, ...]:
    """One line for each of the longest waits, and one that counts the others."""
    texts = [_long_wait_text(node, now_ns) for node in nodes[:_MOST_LISTED]]
    if len(nodes) > _MOST_LISTED:
        others = [rank for node in nodes[_MOST_LISTED:] for rank in node.waiting]
        texts.append(f"{Tense.PRESENT.waits(others)} in other ops, less long")
    return tuple(texts)


def _long_wait_text(node: WaitNode, now_ns: int) -> str:
    """`rank 1 waits 25s in barrier #41 of default_pg at train.py:88; how long that ...`."""
    waits = [wait for wait in node.waits if now_ns > deadlines_of(wait).lasting]
    oldest = min(waits, key=lambda wait: wait.since_ns)
    age = age_words((now_ns - oldest.since_ns) / 1e9, least=not oldest.op.dated)
    usual = "its usual duration is not known yet"
    if has_history(oldest.op):
        # Without a line it is the longest pause of the group, or a bound on it: nothing usual.
        usual = "that is longer than usual in this group"
        if oldest.op.site is not None:
            usual = f"usually {timing(oldest.op.usual_ns)} there"
    ranks = Tense.PRESENT.waits(wait.rank for wait in waits)
    return f"{ranks} {age} in {op_text(node)}{at_line(oldest.op)}; {usual}"


def dropped_notes(dropped: Sequence[Finding], findings: Sequence[Finding]) -> tuple[str, ...]:
    """Who waits in ops of which no finding is reported, as these follow from `findings`."""
    waiting = (finding for finding in dropped if not isinstance(finding.detail, Aborted))
    ranks = {rank for finding in waiting for rank in finding.victims}
    ranks.difference_update(*(absent(finding) for finding in findings))
    text = f"{folded(ranks)} wait in ops that all have issued: most likely for the same cause"
    return (text,) if ranks else ()


def death_notes(deaths: Deaths, findings: Sequence[Finding]) -> tuple[str, ...]:
    """Deaths that no finding is about."""
    if any(f.kind in ("dead", "mismatch") or isinstance(f.detail, Aborted) for f in findings):
        return ()
    blamed = {rank for finding in findings for rank in finding.culprits}
    return tuple(
        f"rank {death.rank} died: {death.text}; nobody waits for it"
        for death in deaths.first[:4]
        if death.rank not in blamed
    )

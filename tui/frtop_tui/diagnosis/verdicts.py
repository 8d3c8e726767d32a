"""Puts findings into words, once, at the end: the verdicts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from frtop_tui.diagnosis.blocked.wait import deadlines_of, has_history
from frtop_tui.diagnosis.cases.dead.detect import Aborted
from frtop_tui.diagnosis.cases.dead.roots import Deaths
from frtop_tui.diagnosis.cases.not_entered.detect import absent
from frtop_tui.diagnosis.cases.registry import kind_of
from frtop_tui.diagnosis.cases.slow.detect import SlowDetail
from frtop_tui.diagnosis.cases.stuck.detect import InDoubt
from frtop_tui.diagnosis.evidence.gpu_activity import SpinningGpu, spinning_gpus
from frtop_tui.diagnosis.finding import Finding
from frtop_tui.diagnosis.graph.wait_node import WaitNode
from frtop_tui.diagnosis.model import Sentences, Verdict
from frtop_tui.diagnosis.words.phrases import Tense, at_line, op_text
from frtop_tui.job.gpus import SPINS, power_text, shared_text
from frtop_tui.job.model import BaseFrame, Rank
from frtop_tui.job.naming import folded, printable
from frtop_tui.job.units import timing
from frtop_tui.job.unprepared import age_words


def gpu_evidence(views: Mapping[int, Rank], ranks: Iterable[int], now_ns: int) -> tuple[str, ...]:
    """One line about the GPUs of `ranks` that are busy at little more than idle power."""
    found: dict[tuple[str, str], tuple[SpinningGpu, list[int]]] = {}
    for rank in sorted(ranks):
        view = views.get(rank)
        if view is not None and view.gauges is not None:
            for one in spinning_gpus(view, now_ns):
                name = one.gpu.uuid or str(one.gpu.index)
                found.setdefault((view.host, name), (one, []))[1].append(rank)
    if not found:
        return ()
    everybody = {rank for _, theirs in found.values() for rank in theirs}
    if len(found) == 1:
        [(one, _)] = found.values()
        text = (
            f"GPU {one.gpu.index} of {folded(everybody)} is {one.utilization} % busy at"
            f" {power_text(one.power_mw, one.limit_mw)}: {SPINS}"
        )
        shared = shared_text(one.gpu)
        return (f"{text} ({shared})" if shared else text,)
    seen = [one for one, _ in found.values()]
    use, power = _span(one.utilization for one in seen), _span(one.power_mw // 1000 for one in seen)
    limit = _span(one.limit_mw // 1000 for one in seen)
    text = f"{len(seen)} GPUs of {folded(everybody)} are {use} % busy at {power} of {limit} W each"
    several = any(one.gpu.processes > 1 for one in seen)
    note = " (some are shared by several processes)" if several else ""
    return (f"{text}: {SPINS}{note}",)


def _span(values: Iterable[int]) -> str:
    """`96`, `90 to 110`."""
    known = sorted(set(values))
    return str(known[0]) if len(known) == 1 else f"{known[0]} to {known[-1]}"


_WAITS: Final = frozenset({"stuck", "not_entered"})
"""Kinds of findings in which ranks wait in an op, perhaps with its kernel on their devices."""


def sentences(finding: Finding, frame: BaseFrame, tense: Tense = Tense.PRESENT) -> Sentences:
    """The sentences about a finding in `frame`."""
    said = kind_of(finding).words(finding, finding.detail, frame, tense)
    said = replace(said, next=_on_its_host(said.next, finding, frame))
    if finding.kind in _WAITS or isinstance(finding.detail, InDoubt):
        about = finding.victims
        if finding.progress != "active":  # else a culprit's kernels are small, but do not wait
            about = about.union(finding.culprits)
        if lines := gpu_evidence(frame.ranks, about, frame.now_ns):
            return replace(said, evidence=(*said.evidence, *lines))
    return said


_COMMAND: Final = re.compile(r"(?:cat|fuser|grep|kill|ls|lslocks|ps|py-spy|ss|timeout|top) ")


def _on_its_host(step: str, finding: Finding, frame: BaseFrame) -> str:
    """A command to type, after the host to type it on if there are several."""
    if not _COMMAND.match(step):
        return step
    hosts = {frame.ranks[one].host for one in finding.culprits if one in frame.ranks}
    if len(hosts) != 1 or all(one.host in hosts for one in frame.ranks.values()):
        return step
    return f"on {printable(hosts.pop())}: {step}"


def word(finding: Finding, frame: BaseFrame) -> Verdict:
    """The verdict on a finding, as of now."""
    return verdict_of(finding, sentences(finding, frame))


def verdict_of(finding: Finding, said: Sentences) -> Verdict:
    """The verdict that has the facts of `finding` and the sentences of `said`."""
    return Verdict(
        kind=finding.kind,
        confidence=finding.confidence,
        progress=finding.progress,
        culprits=finding.culprits,
        headline=said.headline,
        why=said.why,
        next=said.next,
        victims=finding.victims,
        parties=finding.parties,
        group=finding.group,
        op=finding.op,
        since_ns=finding.since_ns,
        left_s=finding.left_s,
        evidence=said.evidence,
        missing=said.missing,
        issuer=finding.issuer,
        slow=finding.detail.slowness if isinstance(finding.detail, SlowDetail) else None,
    )


_MOST_LISTED: Final = 3


def long_wait_texts(nodes: Sequence[WaitNode], now_ns: int) -> tuple[str, ...]:
    """One line for each of the longest waits, and one that counts the others."""
    texts = [_long_wait_text(node, now_ns) for node in nodes[:_MOST_LISTED]]
    if len(nodes) > _MOST_LISTED:
        others = [rank for node in nodes[_MOST_LISTED:] for rank in node.waiting]
        texts.append(f"{Tense.PRESENT.waits(others)} in other ops, not as long")
    return tuple(texts)


def _long_wait_text(node: WaitNode, now_ns: int) -> str:
    """`rank 1 waits 25s in barrier #41 of default_pg at train.py:88; usually 0.3s there`."""
    waits = [wait for wait in node.waits if now_ns > deadlines_of(wait).lasting]
    oldest = min(waits, key=lambda wait: wait.since_ns)
    age = age_words((now_ns - oldest.since_ns) / 1e9, least=not oldest.op.dated)
    usual = "its usual duration is not known yet"
    if has_history(oldest.op):
        # Without a line, it is the group's longest pause, or a bound on that, not a usual wait.
        usual = "that is longer than usual in this group"
        if oldest.op.site is not None:
            usual = f"usually {timing(oldest.op.usual_ns)} there"
    ranks = Tense.PRESENT.waits(wait.rank for wait in waits)
    return f"{ranks} {age} in {op_text(node)}{at_line(oldest.op)}; {usual}"


def dropped_notes(dropped: Sequence[Finding], findings: Sequence[Finding]) -> tuple[str, ...]:
    """Ranks that wait in ops without a verdict, because these follow from `findings`."""
    waiting = (finding for finding in dropped if not isinstance(finding.detail, Aborted))
    ranks = {rank for finding in waiting for rank in finding.victims}
    ranks.difference_update(*(absent(finding) for finding in findings))
    text = f"{folded(ranks)} wait in ops that all have issued: most likely for the same cause"
    return (text,) if ranks else ()


def death_notes(deaths: Deaths, findings: Sequence[Finding]) -> tuple[str, ...]:
    """Deaths that are in no finding."""
    if any(f.kind in ("dead", "mismatch") or isinstance(f.detail, Aborted) for f in findings):
        return ()
    blamed = {rank for finding in findings for rank in finding.culprits}
    return tuple(
        f"rank {death.rank} died: {death.text}; nobody waits for it"
        for death in deaths.first[:4]
        if death.rank not in blamed
    )

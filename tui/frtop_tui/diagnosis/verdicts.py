"""Findings put into words, once, at the end: the verdicts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec.structs import replace

from frtop_tui.diagnosis.cases.registry import kind_of
from frtop_tui.diagnosis.cases.slow.detect import SlowDetail
from frtop_tui.diagnosis.cases.stuck.detect import InDoubt
from frtop_tui.diagnosis.evidence.gpu_activity import SpinningGpu, spinning_gpus
from frtop_tui.diagnosis.finding import Finding
from frtop_tui.diagnosis.model import Sentences, Verdict
from frtop_tui.diagnosis.words.phrases import Tense
from frtop_tui.job.gpus import SPINS, power_text, shared_text
from frtop_tui.job.model import BaseFrame, Rank
from frtop_tui.job.naming import folded


def gpu_evidence(views: Mapping[int, Rank], ranks: Iterable[int], now_ns: int) -> tuple[str, ...]:
    """One line on the GPUs of `ranks` that are busy at little more than idle power, if any are."""
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
"""Kinds of findings in which ranks wait in an op, maybe with a kernel of it on their devices."""


def sentences(finding: Finding, frame: BaseFrame, tense: Tense = Tense.PRESENT) -> Sentences:
    """What there is to say about a finding; `frame` is the one that it was found in."""
    said = kind_of(finding).words(finding, finding.detail, frame, tense)
    if finding.kind in _WAITS or isinstance(finding.detail, InDoubt):
        about = finding.victims
        if finding.progress != "active":  # else a culprit's kernels are small, and do not wait
            about = about.union(finding.culprits)
        if lines := gpu_evidence(frame.ranks, about, frame.now_ns):
            return replace(said, evidence=(*said.evidence, *lines))
    return said


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

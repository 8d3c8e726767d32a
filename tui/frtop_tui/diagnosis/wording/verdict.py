"""Findings put into words: one function for each detail, called once, at the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from msgspec.structs import replace

from frtop_tui.diagnosis.detectors.deadlock import Deadlock
from frtop_tui.diagnosis.detectors.deaths.died import (
    Aborted,
    ConnectionsBroke,
    Died,
    GaveUp,
    LeftGroup,
)
from frtop_tui.diagnosis.detectors.early_exit import Exited
from frtop_tui.diagnosis.detectors.mismatch.checksums import ChecksumsDiffer
from frtop_tui.diagnosis.detectors.mismatch.live_mismatch import OpsDiffer
from frtop_tui.diagnosis.detectors.not_entered import NotEntered
from frtop_tui.diagnosis.detectors.slow.slow import LateDetail, LinkDetail, SlowDetail
from frtop_tui.diagnosis.detectors.stalled_outside_ops import HeldOutside, NotEnding, Resting
from frtop_tui.diagnosis.detectors.standing_waits import StandingWaits
from frtop_tui.diagnosis.detectors.stuck.stuck import InDoubt, LaggingDevices, Stuck
from frtop_tui.diagnosis.detectors.unfinished_ops import UnfinishedOps
from frtop_tui.diagnosis.detectors.unobserved import NeverJoined, Unobserved
from frtop_tui.diagnosis.detectors.withheld import Withheld
from frtop_tui.diagnosis.detectors.without_numbers import (
    CallRing,
    DifferentCalls,
    MaybeComing,
    OutsideCall,
    SameCall,
)
from frtop_tui.diagnosis.finding import Detail, Finding
from frtop_tui.diagnosis.model import Sentences, Verdict
from frtop_tui.diagnosis.wording import (
    deadlock,
    deaths,
    mismatch,
    not_entered,
    outside,
    slow,
    stuck,
    transports,
    without_numbers,
)
from frtop_tui.diagnosis.wording.gpus import gpu_evidence
from frtop_tui.diagnosis.wording.phrases import Tense
from frtop_tui.job.model import BaseFrame

WORDS: Final[dict[type[Detail], Callable[[Finding, Any, BaseFrame, Tense], Sentences]]] = {
    OpsDiffer: mismatch.ops_differ,
    ChecksumsDiffer: mismatch.checksums_differ,
    Died: deaths.died,
    Aborted: deaths.aborted,
    ConnectionsBroke: deaths.connections_broke,
    LeftGroup: deaths.left_group,
    GaveUp: deaths.gave_up,
    Exited: deaths.exited,
    Deadlock: deadlock.deadlock,
    NotEntered: not_entered.not_entered,
    Withheld: not_entered.withheld,
    NeverJoined: not_entered.never_joined,
    Unobserved: stuck.in_doubt,
    StandingWaits: transports.standing_waits,
    InDoubt: stuck.in_doubt,
    LaggingDevices: stuck.lagging_devices,
    Stuck: stuck.stuck,
    HeldOutside: outside.held_outside,
    NotEnding: outside.not_ending,
    Resting: outside.resting,
    UnfinishedOps: stuck.unfinished_ops,
    OutsideCall: without_numbers.outside_call,
    MaybeComing: without_numbers.maybe_coming,
    SameCall: without_numbers.same_call,
    DifferentCalls: without_numbers.different_calls,
    CallRing: without_numbers.call_ring,
    LateDetail: slow.late,
    LinkDetail: slow.slow_link,
}
_WAITS: Final = frozenset({"stuck", "not_entered"})
"""Kinds of findings in which ranks wait in an op, maybe with a kernel of it on their devices."""


def sentences(finding: Finding, frame: BaseFrame, tense: Tense = Tense.PRESENT) -> Sentences:
    """What there is to say about a finding; `frame` is the one that it was found in."""
    said = WORDS[type(finding.detail)](finding, finding.detail, frame, tense)
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

"""Which findings are confirmed, and when: one table.

A finding is a suspicion until its row of `TABLE` says otherwise. A row names the clock that has
to show the same finding twice, `CONFIRM_NS` apart, and the vetoes that keep it a suspicion.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from msgspec.structs import replace

from frtop_tui.diagnosis.detectors.certainty import CERTAIN
from frtop_tui.diagnosis.detectors.context import Context
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
from frtop_tui.diagnosis.detectors.slow.slow import SlowDetail
from frtop_tui.diagnosis.detectors.stalled_outside_ops import HeldOutside, NotEnding, Resting
from frtop_tui.diagnosis.detectors.standing_waits import StandingWaits
from frtop_tui.diagnosis.detectors.stuck.stuck import InDoubt, LaggingDevices, Stuck
from frtop_tui.diagnosis.detectors.unfinished_ops import UnfinishedOps
from frtop_tui.diagnosis.detectors.unobserved import NeverJoined, Unobserved
from frtop_tui.diagnosis.detectors.withheld import Withheld
from frtop_tui.diagnosis.detectors.without_numbers import CallDetail
from frtop_tui.diagnosis.evidence.progress import may_be_slow_step
from frtop_tui.diagnosis.evidence.rank_activity import stacks_due
from frtop_tui.diagnosis.finding import Detail, Finding
from frtop_tui.diagnosis.history.false_alarms import FalseAlarms
from frtop_tui.diagnosis.thresholds import (
    BUSY_NS,
    CONFIRM_NS,
    FORGET_SUSPICION_NS,
    STACKS_DUE_NS,
    SUSPECTS_PER_NODE,
)
from frtop_tui.job.model import Rank

Clock = Literal[
    "at once",  # it proves itself
    "window",  # the window that shows it does so beyond doubt
    "frames",  # two frames
    "snapshots",  # two snapshots of each culprit
    "never",
]


class Situation(NamedTuple):
    """What vetoes read beside the finding."""

    context: Context
    false_alarms: FalseAlarms


Veto = Callable[[Finding, Situation], bool]


class Row(NamedTuple):
    """How findings with one detail are confirmed.

    `unless` keeps it a suspicion, and the clock does not start; `vetoes` keep it one although
    the clock runs. Each has the reason that `--explain` prints. `when` restricts the row; the
    first row that applies counts.
    """

    detail: type[Detail]
    clock: Clock
    unless: tuple[tuple[str, Veto], ...] = ()
    vetoes: tuple[tuple[str, Veto], ...] = ()
    when: Callable[[Finding], bool] = lambda _: True


def _is_unsure_death(finding: Finding) -> bool:
    assert isinstance(finding.detail, Died)
    return finding.detail.deaths[0].nature in ("unknown", "abort", "network")


def _from_dumps(finding: Finding, _: Situation) -> bool:
    assert isinstance(finding.detail, OpsDiffer)
    return finding.detail.from_dumps


def _ops_before_are_due(finding: Finding, situation: Situation) -> bool:
    """Whether the two ranks whose splits do not pair were not looked at since.

    An all_to_all that brings rows back differs where the one that sent them differed, and passed.
    """
    assert isinstance(finding.detail, OpsDiffer)
    one = finding.detail.mismatch
    return any(
        rank.evidence.has_ages
        and rank.exit_info is None
        and (rank.snapshot is None or rank.snapshot.at_ns + rank.clock_ns < one.since_ns)
        for rank in map(situation.context.ranks.get, one.first_pair)
        if rank is not None
    )


def _is_unaligned(finding: Finding) -> bool:
    assert isinstance(finding.detail, OpsDiffer)
    return bool(finding.detail.unaligned)


def _has_unknowns(finding: Finding, _: Situation) -> bool:
    assert isinstance(finding.detail, Deadlock)
    return bool(finding.detail.uncertain or finding.detail.members_unknown)


def _members_unknown(finding: Finding, _: Situation) -> bool:
    assert isinstance(finding.detail, NotEntered | NeverJoined)
    return finding.detail.members_unknown


def _on_unheard_hosts(finding: Finding, _: Situation) -> bool:
    assert isinstance(finding.detail, NeverJoined)
    return not finding.detail.on_heard_hosts


def _had_time_to_come(finding: Finding) -> bool:
    assert isinstance(finding.detail, NotEntered)
    return finding.detail.busy_ns >= BUSY_NS


def _progress_is_due(finding: Finding, situation: Situation) -> bool:
    """That it is absent is sure; the next snapshot will show whether it makes progress."""
    return finding.progress == "unknown" and any(
        rank.snapshot is not None and rank.prior_snapshot is None
        for rank in _culprits(finding, situation)
    )


def _is_stalled(finding: Finding) -> bool:
    return finding.progress == "none" and finding.cause not in CERTAIN


def _may_be_slow(finding: Finding, situation: Situation) -> bool:
    now_ns = situation.context.now_ns
    return _is_stalled(finding) and any(
        may_be_slow_step(rank, now_ns) for rank in _culprits(finding, situation)
    )


def _was_false_alarm(finding: Finding, situation: Situation) -> bool:
    now_ns = situation.context.now_ns
    return _is_stalled(finding) and situation.false_alarms.was_false_alarm(finding.nodes[0], now_ns)


def _is_unproven(finding: Finding, _: Situation) -> bool:
    assert isinstance(finding.detail, HeldOutside | NotEnding)
    return not finding.detail.proven


def _may_be_chance(finding: Finding, _: Situation) -> bool:
    assert isinstance(finding.detail, SlowDetail)
    return not finding.detail.sure


_CALLERS: Final[tuple[tuple[str, Veto], ...]] = (
    ("nobody knows which ranks have to make this call", _members_unknown),
)
_ABSENT: Final[tuple[tuple[str, Veto], ...]] = (
    ("a second snapshot, which shows progress, is due", _progress_is_due),
    ("its absence is no longer than a slow step of its own", _may_be_slow),
    ("an equal wait at this line was called hung before, and ended", _was_false_alarm),
)

_LESS_SURE: Final = (
    "seen for less than 7.5 s, or by chance more often than once in 100 million looks"
)
TABLE: Final[tuple[Row, ...]] = (
    Row(OpsDiffer, "frames", when=_is_unaligned),
    Row(
        OpsDiffer,
        "at once",
        (
            ("it is known from dumps only", _from_dumps),
            (
                "the ops before it were not compared yet: one of these may be the root",
                _ops_before_are_due,
            ),
        ),
    ),
    Row(ChecksumsDiffer, "never"),
    Row(Died, "frames", when=_is_unsure_death),
    Row(Died, "at once"),
    Row(Aborted, "never"),
    Row(ConnectionsBroke, "frames"),
    Row(LeftGroup, "frames"),
    Row(GaveUp, "at once"),
    Row(Exited, "at once"),
    Row(Deadlock, "frames", (("a side of the ring is uncertain", _has_unknowns),)),
    Row(NotEntered, "at once", when=_had_time_to_come),
    Row(NotEntered, "frames", _CALLERS, _ABSENT, when=lambda finding: finding.cause in CERTAIN),
    Row(NotEntered, "snapshots", _CALLERS, _ABSENT),
    Row(
        NeverJoined,
        "frames",
        (*_CALLERS, ("they may run on hosts that are not heard", _on_unheard_hosts)),
    ),
    Row(Unobserved, "frames"),
    Row(StandingWaits, "frames"),
    Row(LaggingDevices, "snapshots"),
    Row(Stuck, "frames"),
    Row(InDoubt, "frames"),
    Row(HeldOutside, "at once", (("it may be that what they wait for comes", _is_unproven),)),
    Row(NotEnding, "at once", (("it was not seen to stay there for 20 s yet", _is_unproven),)),
    Row(Resting, "frames"),
    Row(Withheld, "never"),
    Row(UnfinishedOps, "never"),
    Row(CallDetail, "never"),
    Row(SlowDetail, "window", ((_LESS_SURE, _may_be_chance),)),
)


@dataclass(slots=True)
class Confirmations:
    """Remembers since when each finding has been made."""

    _first: dict[Hashable, tuple[int, int]] = field(default_factory=dict)
    """By key: the stamp of the first time, and the frame of the last."""

    def apply(self, findings: Sequence[Finding], situation: Situation) -> list[Finding]:
        """The findings, confirmed where the table says so."""
        return [
            replace(one, confidence="confirmed") if self._is_confirmed(one, situation) else one
            for one in findings
        ]

    def reason(self, finding: Finding, situation: Situation) -> str:
        """Why a finding is confirmed or not, for people."""
        row = row_of(finding)
        veto = _first((*row.unless, *row.vetoes), finding, situation)
        if veto:
            return f"not confirmed: {veto}"
        confirmed, waits_for = _CLOCKS[row.clock]
        return confirmed if finding.confidence == "confirmed" else waits_for

    def forget(self, now_ns: int) -> None:
        """Drops suspicions that were not repeated for some seconds."""
        stale = [k for k, (_, last) in self._first.items() if now_ns - last > FORGET_SUSPICION_NS]
        for key in stale:
            del self._first[key]

    def _is_confirmed(self, finding: Finding, situation: Situation) -> bool:
        row = row_of(finding)
        if _first(row.unless, finding, situation):
            return False
        # The clock runs on while a veto holds.
        confirmed = row.clock in ("at once", "window") or self._seen_twice(row, finding, situation)
        return confirmed and not _first(row.vetoes, finding, situation)

    def _seen_twice(self, row: Row, finding: Finding, situation: Situation) -> bool:
        if row.clock == "never":
            return False
        now_ns = situation.context.now_ns
        stamp: int | None = now_ns
        wanted_ns = CONFIRM_NS
        if row.clock == "snapshots":
            culprits = _culprits(finding, situation)
            stamp = _oldest_snapshot_ns(culprits)
            # The kernel shows a wait in C++ or for a compiler as it shows any other.
            wanted_ns = STACKS_DUE_NS if any(map(stacks_due, culprits)) else CONFIRM_NS
        if stamp is None:
            return False
        first, _ = self._first.get(finding.key, (stamp, now_ns))
        self._first[finding.key] = (first, now_ns)
        return stamp - first >= wanted_ns


_CLOCKS: Final[dict[Clock, tuple[str, str]]] = {
    "at once": ("confirmed: it proves itself", ""),
    "window": ("confirmed: by chance it is seen once in 100 million looks", ""),
    "frames": ("confirmed: seen twice, 2 s apart", "not confirmed: not seen for 2 s yet"),
    "snapshots": (
        "confirmed: two snapshots of its culprits, 2 s apart, agree",
        "not confirmed: no two snapshots of its culprits, 2 s apart, yet",
    ),
    "never": ("", "not confirmed: nothing can confirm it"),
}
"""What `--explain` prints of a finding that is confirmed, and of one that is not."""


def confirmed_at_once(finding: Finding) -> Finding:
    """A finding out of a file, where nothing more will be seen."""
    at_once = row_of(finding).clock == "at once"
    return replace(finding, confidence="confirmed") if at_once else finding


def row_of(finding: Finding) -> Row:
    """The first row of the table that applies."""
    kind = type(finding.detail)
    return next(row for row in TABLE if issubclass(kind, row.detail) and row.when(finding))


def _first(vetoes: Sequence[tuple[str, Veto]], finding: Finding, situation: Situation) -> str:
    """The reason of the first that applies, "" if none does."""
    return next((text for text, applies in vetoes if applies(finding, situation)), "")


def _culprits(finding: Finding, situation: Situation) -> list[Rank]:
    return [situation.context.ranks[rank] for rank in finding.culprits[:SUSPECTS_PER_NODE]]


def _oldest_snapshot_ns(ranks: Sequence[Rank]) -> int | None:
    """Operator's time of the oldest last snapshot; None while one is missing."""
    stamps = [one.snapshot.at_ns + one.clock_ns for one in ranks if one.snapshot is not None]
    return min(stamps) if stamps and len(stamps) == len(ranks) else None

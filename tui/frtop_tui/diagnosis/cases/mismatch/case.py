"""Collective mismatch (desync): members of a group issued different ops at one number."""

from __future__ import annotations

from typing import Final

from frtop_tui.diagnosis.cases.context import Context
from frtop_tui.diagnosis.cases.declare import Case, Kind, Rule
from frtop_tui.diagnosis.cases.mismatch.checksums import ChecksumsDiffer
from frtop_tui.diagnosis.cases.mismatch.detect import OpsDiffer, detect
from frtop_tui.diagnosis.cases.mismatch.words import checksums_differ, ops_differ
from frtop_tui.diagnosis.finding import Finding


def _is_unaligned(finding: Finding) -> bool:
    assert isinstance(finding.detail, OpsDiffer)
    return bool(finding.detail.unaligned)


def _from_dumps(finding: Finding, _: Context) -> bool:
    assert isinstance(finding.detail, OpsDiffer)
    return finding.detail.from_dumps


def _ops_before_are_due(finding: Finding, context: Context) -> bool:
    """Whether the two ranks whose splits do not pair still have to be looked at.

    An all_to_all that returns rows differs if the one that sent them differed and passed.
    """
    assert isinstance(finding.detail, OpsDiffer)
    one = finding.detail.mismatch
    return any(
        rank.evidence.has_ages
        and rank.exit_info is None
        and (rank.snapshot is None or rank.snapshot.at_ns + rank.clock_ns < one.since_ns)
        for rank in map(context.ranks.get, one.first_pair)
        if rank is not None
    )


_ITSELF: Final = Rule(
    "at once",
    (
        ("it is known from files only", _from_dumps),
        (
            "earlier ops are not compared yet: one of them may be the root cause",
            _ops_before_are_due,
        ),
    ),
)
MISMATCH: Final = Case(
    (
        Kind(OpsDiffer, ops_differ, (Rule("frames", when=_is_unaligned), _ITSELF)),
        Kind(ChecksumsDiffer, checksums_differ, (Rule("never"),)),
    ),
    detect,
)

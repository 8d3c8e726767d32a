"""Notes: what is worth knowing, and nothing to act on."""

from __future__ import annotations

from collections.abc import Sequence

from frtop_tui.diagnosis.detectors.deaths.died import Aborted
from frtop_tui.diagnosis.detectors.deaths.roots import Deaths
from frtop_tui.diagnosis.detectors.withheld import absent
from frtop_tui.diagnosis.finding import Finding
from frtop_tui.job.naming import folded


def dropped_notes(dropped: Sequence[Finding], findings: Sequence[Finding]) -> tuple[str, ...]:
    """Who waits in ops of which no finding is reported, as these follow from `findings`."""
    ranks = {rank for finding in dropped for rank in finding.victims}
    ranks.difference_update(*(absent(finding) for finding in findings))
    text = f"{folded(ranks)} wait in ops that all have issued: behind the same, most likely"
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

"""How much of a job was seen, and what was lost: partial is labelled, never complete."""

from __future__ import annotations

from collections.abc import Mapping

from frtop_probe.ring.fold import fold
from frtop_probe.ring.layout import State
from frtop_tui.job.model import Coverage, RankView
from frtop_tui.job.naming import folded


def coverage_of(
    ranks: Mapping[int, RankView], world_size: int, lost_updates: int, nameless: int
) -> Coverage:
    """`nameless` counts processes that have not said which rank they are."""
    expected = world_size or len(ranks)
    silent_hosts = [rank for rank, view in ranks.items() if view.posture == "unheard"]
    never = [r for r in range(expected) if r not in ranks] if len(ranks) < expected else []
    notes: list[str] = []
    if never:
        notes.append(
            f"{folded(never)} never heard of: not started yet, not prepared,"
            " or on a host that is not connected"
        )
    if silent_hosts:
        notes.append(f"{folded(silent_hosts)}: host silent, last known state shown")
    notes.extend(_recorder_notes(ranks))
    if nameless:
        notes.append(f"{nameless} process(es) have not said which rank they are")
    if lost_updates:
        notes.append(f"{lost_updates} updates lost, state asked for again")
    return Coverage(
        expected=expected,
        heard=len(ranks) - len(silent_hosts),
        unheard=tuple(sorted([*silent_hosts, *never])),
        lost_updates=lost_updates,
        notes=tuple(notes),
    )


def _recorder_notes(ranks: Mapping[int, RankView]) -> list[str]:
    """What the recorders say they lost, or that they gave up."""
    present = {rank: view.present for rank, view in ranks.items() if view.present is not None}
    notes: list[str] = []
    off = [rank for rank, cells in present.items() if cells.state == State.OFF]
    hook = [rank for rank, cells in present.items() if cells.hook_errors]
    if off:
        notes.append(f"recorder switched itself off on {folded(off)}")
    elif hook:
        notes.append(f"errors in the hook on {folded(hook)}: ops may be missing")
    ops = {rank: cells.pending_lost for rank, cells in present.items() if cells.pending_lost}
    sides = {rank: cells.side_lost for rank, cells in present.items() if cells.side_lost}
    if ops:
        notes.append(f"{sum(ops.values()):,} pending ops lost on {folded(ops)}")
    if sides:
        notes.append(f"{sum(sides.values()):,} signatures or call sites lost on {folded(sides)}")
    return notes


def unheard_text(coverage: Coverage) -> str:
    """`62 of 64 ranks heard; not 5,9`, or just the count when all are."""
    text = f"{coverage.heard} of {coverage.expected} ranks heard"
    return f"{text}; not {fold(coverage.unheard)}" if coverage.unheard else text

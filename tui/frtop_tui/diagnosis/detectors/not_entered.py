"""Whom to blame of those who are absent from an op: as few as can be justified."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from frtop_tui.diagnosis.evidence.progress import ProgressSeen, progress_of
from frtop_tui.diagnosis.evidence.rank_activity import has_newer_op, main_thread_location
from frtop_tui.diagnosis.evidence.stack_location import locate
from frtop_tui.diagnosis.wording.absence import Absence, absence_of
from frtop_tui.job.model import Rank

EXPLAINED = 64
"""So many absent ranks are looked into one by one."""


_UNSEEN: Final = ProgressSeen("unknown", "one_snapshot")
_AWAITING: Final[dict[str, ProgressSeen]] = {
    "idle": ProgressSeen("unknown", "nothing_to_do"),
    "input": ProgressSeen("unknown", "input_open"),
}
"""A server without work stands as still as one that hangs."""


@dataclass(frozen=True, slots=True)
class SameCause:
    """Ranks that are absent for one cause, in the words of the first of them."""

    ranks: tuple[int, ...]
    absence: Absence
    progress: ProgressSeen


@dataclass(frozen=True, slots=True)
class Absentees:
    """Who is blamed, and who is absent, too, but is not.

    That are those `moving`, those of whom that is `unknown`, and those `kept` by one that
    moves, as far as can be seen.
    """

    culprits: tuple[SameCause, ...]
    moving: tuple[int, ...] = ()
    unknown: tuple[int, ...] = ()
    kept: tuple[int, ...] = ()


def blame(views: Mapping[int, Rank], absent: Sequence[int], now_ns: int) -> Absentees:
    """Those of `absent` that get nowhere, else those of which it is not known, else all.

    Only a few are looked at closely. Who is absent for the same cause as one that gets
    nowhere is blamed with it, unless it is seen to move. Who waits for a locked file is not
    blamed while another one moves: that may hold the lock, as who compiles for all of a host.
    Nor who waits for a key of the store, as long as somebody is elsewhere, who may have to set it.
    Nor is who is seen in a collective for the first time, on its way into the op as it seems, or
    has issued another op by a look that is newer than all that was told.
    Of very many absent ranks only the first are looked into, and last those that others may keep.
    """
    first = sorted(absent, key=lambda rank: _may_be_kept(views[rank]))[:EXPLAINED]
    causes = {rank: absence_of(views[rank], now_ns) for rank in sorted(first)}
    progress = {rank: _progress(views[rank], causes[rank], now_ns) for rank in causes}
    kept = _kept(views, progress)
    coming = {rank for rank in progress if _is_coming(views[rank], now_ns)}
    progress = {r: how for r, how in progress.items() if r not in coming and r not in kept}
    still = [rank for rank, seen in progress.items() if seen.progress == "none"]
    unseen = [rank for rank, seen in progress.items() if seen.progress == "unknown"]
    stalled = {causes[rank].why.cause for rank in still} - {"unknown"}
    alike = [rank for rank in unseen if causes[rank].why.cause in stalled]
    guilty = [*still, *alike] or unseen or list(progress)
    by_cause: dict[str, list[int]] = {}
    for rank in guilty:
        by_cause.setdefault(causes[rank].why.cause, []).append(rank)
    culprits = tuple(
        SameCause(tuple(sorted(ranks)), causes[ranks[0]], progress[ranks[0]])
        for ranks in by_cause.values()
    )
    named = {*guilty, *kept, *coming}
    others = [rank for rank in absent if rank not in named]
    moving = tuple(rank for rank in others if progress.get(rank, _UNSEEN).progress == "active")
    unknown = tuple(rank for rank in others if progress.get(rank, _UNSEEN).progress != "active")
    return Absentees(culprits, moving, unknown, kept)


def _may_be_kept(view: Rank) -> bool:
    place = main_thread_location(view)
    return place is not None and place.kind in ("key", "file_lock")


def _kept(views: Mapping[int, Rank], progress: Mapping[int, ProgressSeen]) -> tuple[int, ...]:
    """Those at a locked file, if another one moves, and at a store, if another one is not."""
    places = {rank: main_thread_location(views[rank]) for rank in progress}
    locked = {rank for rank, at in places.items() if at is not None and at.kind == "file_lock"}
    keyed = {rank for rank, at in places.items() if at is not None and at.kind == "key"}
    elsewhere = progress.keys() - locked - keyed
    moves = any(progress[rank].progress == "active" for rank in elsewhere)
    return tuple(sorted((locked if moves else set()) | (keyed if elsewhere else set())))


def _progress(view: Rank, cause: Absence, now_ns: int) -> ProgressSeen:
    seen = progress_of(view, now_ns)
    return _AWAITING.get(cause.why.cause, seen) if seen.progress == "none" else seen


def _is_coming(view: Rank, now_ns: int) -> bool:
    """Whether its stack is in a collective that it has not told of, for the first time.

    Or whether the look already tells of an op: then its stack may be from anywhere behind it.
    """
    if view.dumped:
        return False
    if has_newer_op(view, now_ns):
        return True
    place = main_thread_location(view)
    if view.pending or place is None or place.kind != "collective":
        return False
    before = view.prior_stack
    return before is None or locate(before).kind != "collective"

"""How much of a job was seen, and what was lost: partial is labelled, never complete."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from frtop_probe.ring.layout import State
from frtop_probe.ring.rank_ranges import fold
from frtop_tui.job.model import Coverage, ObservedRank, RankState
from frtop_tui.job.naming import folded


class Census:
    """How the ranks are seen, counted as they change: not each of them in every frame."""

    def __init__(self) -> None:
        self.postures: Counter[RankState] = Counter()
        self.unheard: set[int] = set()
        self._off: set[int] = set()
        self._hook: set[int] = set()
        self._ops_lost: dict[int, int] = {}
        self._sides_lost: dict[int, int] = {}

    def put(self, old: ObservedRank | None, new: ObservedRank | None) -> None:
        """Takes `new` in the place of `old`, the last view of the same rank."""
        if old is not None and new is not None and _told(old) == _told(new):
            return
        if old is not None:
            self._leave(old)
        if new is not None:
            self._enter(new)

    def coverage(
        self, ranks: Mapping[int, ObservedRank], world_size: int, lost_updates: int, nameless: int
    ) -> Coverage:
        """Of the counted `ranks`; `nameless` are processes that have not said their rank."""
        expected = world_size or len(ranks)
        never = set(range(expected)).difference(ranks) if len(ranks) < expected else set()
        notes: list[str] = []
        if never:
            notes.append(
                f"{folded(never)} never heard of: not started yet, not prepared,"
                " or on a host that is not connected"
            )
        if self.unheard:
            notes.append(f"{folded(self.unheard)}: host silent, last known state shown")
        notes.extend(self._recorder_notes())
        if nameless:
            notes.append(f"{nameless} process(es) have not said which rank they are")
        if lost_updates:
            notes.append(f"{lost_updates} updates lost, state asked for again")
        return Coverage(
            expected=expected,
            heard=len(ranks) - len(self.unheard),
            unheard=tuple(sorted(self.unheard | never)),
            lost_updates=lost_updates,
            notes=tuple(notes),
        )

    def _recorder_notes(self) -> list[str]:
        """What the recorders say they lost, or that they gave up."""
        notes: list[str] = []
        ops, sides = self._ops_lost, self._sides_lost
        if self._off:
            notes.append(f"recorder switched itself off on {folded(self._off)}")
        elif self._hook:
            notes.append(f"errors in the hook on {folded(self._hook)}: ops may be missing")
        if ops:
            notes.append(f"{sum(ops.values()):,} pending ops lost on {folded(ops)}")
        if sides:
            count = f"{sum(sides.values()):,}"
            notes.append(f"{count} signatures or call sites lost on {folded(sides)}")
        return notes

    def _leave(self, view: ObservedRank) -> None:
        rank = view.rank
        self.postures[view.state] -= 1
        for ranks in (self.unheard, self._off, self._hook):
            ranks.discard(rank)
        self._ops_lost.pop(rank, None)
        self._sides_lost.pop(rank, None)

    def _enter(self, view: ObservedRank) -> None:
        rank, cells = view.rank, view.status
        self.postures[view.state] += 1
        if view.state == "unheard":
            self.unheard.add(rank)
        if cells is None:
            return
        if cells.state == State.OFF:
            self._off.add(rank)
        if cells.hook_errors:
            self._hook.add(rank)
        if cells.pending_lost:
            self._ops_lost[rank] = cells.pending_lost
        if cells.side_lost:
            self._sides_lost[rank] = cells.side_lost


def _told(view: ObservedRank) -> tuple[object, ...]:
    """All of a view that is counted."""
    cells = view.status
    if cells is None:
        return (view.state,)
    return (view.state, cells.state, cells.hook_errors, cells.pending_lost, cells.side_lost)


def unheard_text(coverage: Coverage) -> str:
    """`62 of 64 ranks heard; not 5,9`, or just the count when all are."""
    text = f"{coverage.heard} of {coverage.expected} ranks heard"
    return f"{text}; not {fold(coverage.unheard)}" if coverage.unheard else text

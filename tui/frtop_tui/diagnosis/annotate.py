"""The states of ranks and groups that follow from other ranks: blocked, late, waiting."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from itertools import compress, count, filterfalse
from operator import is_not

from msgspec.structs import replace

from frtop_tui.diagnosis.blocked.rank_index import RankIndex
from frtop_tui.diagnosis.blocked.wait import Wait
from frtop_tui.diagnosis.evidence.progress import progress_of
from frtop_tui.diagnosis.graph.wait_graph import SETTLED_NS
from frtop_tui.diagnosis.model import JudgedRank
from frtop_tui.job.clock import Timers
from frtop_tui.job.groups import Identifier, identifier
from frtop_tui.job.model import GroupView, ObservedFrame, Rank, RankState, as_rank

_REPLACED = frozenset({"moving", "starting", "unknown"})
"""States that "blocked" or "late" replaces. A dead, silent or unreachable rank stays so."""


class Annotator:
    """Judges ranks and groups; judges again only those whose inputs have changed.

    A judged rank depends on the rank, on its wait and whether that has settled, and on which ranks
    are late. A judged group depends on the group and on the ranks that wait in it.
    """

    def __init__(self, index: RankIndex) -> None:
        self._index = index
        self._ranks: dict[int, JudgedRank] = {}
        self._late: Mapping[int, int] = {}
        self._alarms = Timers()
        self._sits_in: dict[int, Identifier] = {}  # of ranks whose wait has settled
        self._inside: defaultdict[Identifier, set[int]] = defaultdict(set)
        self._changed: set[Identifier] = set()  # groups that a rank entered or left
        self._observed: tuple[GroupView, ...] = ()
        self._groups: list[GroupView] = []
        self._positions: dict[Identifier, int] = {}

    def ranks(self, frame: ObservedFrame, late: Mapping[int, int]) -> Mapping[int, JudgedRank]:
        """The frame's ranks; `late` says since when others have waited for a rank."""
        index, now_ns = self._index, frame.now_ns
        differently = {rank for rank, _ in late.items() ^ self._late.items()}
        self._late = late
        rewaited = {*index.rewaited, *self._alarms.due(now_ns)}
        for rank in rewaited:
            self._note_group(rank, index.waits.get(rank), now_ns)
        judged = dict(self._ranks)
        for rank in rewaited.union(index.seen, differently):
            view = frame.ranks.get(rank)
            if view is not None:
                judged[rank] = _judged(view, index.waits.get(rank), late, now_ns)
        if index.renumbered:
            judged = {rank: judged[rank] for rank in frame.ranks}
        self._ranks = judged
        return judged

    def groups(self, frame: ObservedFrame) -> tuple[GroupView, ...]:
        """The frame's groups, with the ranks that wait in them; call `ranks` first."""
        observed, before = frame.groups, self._observed
        positions = [*compress(count(), map(is_not, observed, before))]
        if len(observed) != len(before) or any(observed[n].key != before[n].key for n in positions):
            positions, self._groups = [*range(len(observed))], [*observed]
            self._positions = {identifier(group.key): n for n, group in enumerate(observed)}
        changed = (self._positions[key] for key in self._changed if key in self._positions)
        for position in {*positions, *changed}:
            self._groups[position] = _judged_group(observed[position], self._inside)
        self._observed, self._changed = observed, set()
        return tuple(self._groups)

    def _note_group(self, rank: int, wait: Wait | None, now_ns: int) -> None:
        """Notes the group in which a rank waits, once its wait has settled."""
        group = identifier(wait.group) if wait is not None and wait.group is not None else None
        if wait is not None and not wait.has_lasted(SETTLED_NS, now_ns):
            self._alarms.set(rank, wait.since_ns + SETTLED_NS)
            group = None
        before = self._sits_in.pop(rank, None)
        if group is not None:
            self._sits_in[rank] = group
        if group == before:
            return
        if before is not None:
            self._inside[before].discard(rank)
            self._changed.add(before)
        if group is not None:
            self._inside[group].add(rank)
            self._changed.add(group)


def _judged(view: Rank, wait: Wait | None, late: Mapping[int, int], now_ns: int) -> JudgedRank:
    since_late = late.get(view.rank)
    if since_late is not None and view.state in _REPLACED:
        return as_rank(JudgedRank, view, "late", since_late or view.state_since_ns, None)
    if wait is None or wait.background or not wait.has_lasted(SETTLED_NS, now_ns):
        sure = view.state != "moving" or view.evidence.has_ages
        if not sure and progress_of(view, now_ns).progress != "active":
            return as_rank(JudgedRank, view, "unknown", view.state_since_ns, view.blocked_on)
        return as_rank(JudgedRank, view)
    # A rank in its first `init_process_group` is still starting, and says so.
    gives_way = view.state in _REPLACED and not (wait.op.pseudo and not view.groups)
    state: RankState = "blocked" if gives_way else view.state
    # "moving" and "starting" begin when frtop starts to look; the wait's own start is more exact.
    dated = state in ("blocked", "starting") and not wait.undated
    since = wait.since_ns if dated else view.state_since_ns
    return as_rank(JudgedRank, view, state, since, wait.op)


def _judged_group(group: GroupView, inside: Mapping[Identifier, set[int]]) -> GroupView:
    """The group; no rank is late if none waits."""
    waiting = inside.get(identifier(group.key))
    if not waiting:
        return replace(group, late=()) if group.late else group
    late = tuple(filterfalse(waiting.__contains__, group.late))
    return replace(group, late=late, waiting=tuple(sorted(waiting)))

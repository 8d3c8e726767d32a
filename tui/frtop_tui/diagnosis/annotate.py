"""Ranks and groups in the light of the others: who is blocked, who is late."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from itertools import compress, count, filterfalse
from operator import is_not

from msgspec.structs import replace

from frtop_tui.diagnosis.blocked.blocked_op import Wait
from frtop_tui.diagnosis.blocked.rank_index import RankIndex
from frtop_tui.diagnosis.graph.wait_graph import SETTLED_NS
from frtop_tui.diagnosis.model import JudgedRank
from frtop_tui.job.alarms import Alarms
from frtop_tui.job.groups import Identifier, identifier
from frtop_tui.job.model import GroupView, ObservedFrame, Rank, RankState, as_rank

_REPLACED = frozenset({"moving", "starting"})
"""Postures that give way. A rank that is dead, silent or unheard remains so."""


class Annotator:
    """Keeps what is seen in the light of the others; only what changed is seen anew.

    What is said of a rank depends on its view, its wait, on whether that has settled, and
    on who is late; of a group on its view, and on who sits in it.
    """

    def __init__(self, index: RankIndex) -> None:
        self._index = index
        self._ranks: dict[int, JudgedRank] = {}
        self._late: Mapping[int, int] = {}
        self._alarms = Alarms()
        self._seats: dict[int, Identifier] = {}  # of ranks whose wait has settled
        self._inside: defaultdict[Identifier, set[int]] = defaultdict(set)
        self._stirred: set[Identifier] = set()  # groups in which somebody sat down, or got up
        self._plain: tuple[GroupView, ...] = ()
        self._groups: list[GroupView] = []
        self._places: dict[Identifier, int] = {}

    def ranks(self, frame: ObservedFrame, late: Mapping[int, int]) -> Mapping[int, JudgedRank]:
        """The frame's ranks; `late` says since when others wait for one."""
        index, now_ns = self._index, frame.now_ns
        differently = dict(late.items() ^ self._late.items()).keys() & frame.ranks.keys()
        self._late = late
        again = {*index.seen, *index.rewaited, *self._alarms.rung(now_ns), *differently}
        judged = dict(self._ranks)
        for rank in again:
            view, wait = frame.ranks.get(rank), index.waits.get(rank)
            if view is None:
                judged.pop(rank, None)
            else:
                judged[rank] = _judged(view, wait, late, now_ns)
            self._seat(rank, wait, now_ns)
        if index.renumbered:
            judged = {rank: judged[rank] for rank in frame.ranks}
        self._ranks = judged
        return judged

    def groups(self, frame: ObservedFrame) -> tuple[GroupView, ...]:
        """The frame's groups, with who waits in them; after its ranks."""
        plain = frame.groups
        if len(plain) != len(self._plain):
            places = [*range(len(plain))]
            self._groups = [*plain]
            self._places = {_key(group): place for place, group in enumerate(plain)}
        else:
            places = [*compress(count(), map(is_not, plain, self._plain))]
            if any(_key(plain[n]) != _key(self._plain[n]) for n in places):
                self._places = {_key(group): place for place, group in enumerate(plain)}
        stirred = (self._places[key] for key in self._stirred if key in self._places)
        for place in {*places, *stirred}:
            self._groups[place] = _judged_group(plain[place], self._inside)
        self._plain, self._stirred = plain, set()
        return tuple(self._groups)

    def _seat(self, rank: int, wait: Wait | None, now_ns: int) -> None:
        """Notes in which group a rank sits, if it does for long enough."""
        seat = identifier(wait.group) if wait is not None and wait.group is not None else None
        if wait is not None and not wait.has_lasted(SETTLED_NS, now_ns):
            self._alarms.set(rank, wait.since_ns + SETTLED_NS)
            seat = None
        before = self._seats.pop(rank, None)
        if seat is not None:
            self._seats[rank] = seat
        if seat == before:
            return
        if before is not None:
            self._inside[before].discard(rank)
            self._stirred.add(before)
        if seat is not None:
            self._inside[seat].add(rank)
            self._stirred.add(seat)


def _key(group: GroupView) -> Identifier:
    return (group.key.name, group.key.ranks, group.key.epoch)


def _judged(view: Rank, wait: Wait | None, late: Mapping[int, int], now_ns: int) -> JudgedRank:
    """`late` says since when others wait for a rank."""
    since_late = late.get(view.rank)
    if since_late is not None and view.state in _REPLACED:
        return as_rank(JudgedRank, view, "late", since_late or view.state_since_ns, None)
    if wait is None or wait.side or not wait.has_lasted(SETTLED_NS, now_ns):
        return as_rank(JudgedRank, view)
    # A rank in its first `init_process_group` is still starting, and says so.
    gives_way = view.state in _REPLACED and not (wait.op.pseudo and not view.groups)
    posture: RankState = "blocked" if gives_way else view.state
    # "moving" and "starting" are as old as our looking; the wait knows better.
    dated = posture in ("blocked", "starting") and not wait.undated
    since = wait.since_ns if dated else view.state_since_ns
    return as_rank(JudgedRank, view, posture, since, wait.op)


def _judged_group(group: GroupView, inside: Mapping[Identifier, set[int]]) -> GroupView:
    """Nobody is late where nobody waits."""
    waiting = inside.get(_key(group))
    if not waiting:
        return replace(group, late=()) if group.late else group
    late = tuple(filterfalse(waiting.__contains__, group.late))
    return replace(group, late=late, waiting=tuple(sorted(waiting)))

"""Merges what hosts report of slices of time into the statistics of a job.

A window consists of slices, each requested once: so the cost to an agent does not grow with the
window, and the window may be longer than rings reach back.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Mapping
from typing import Final

from frtop_tui.job.naming import GroupKey
from frtop_tui.job.statistics import JobStatistics, StepSplit
from frtop_tui.statistics.alike_groups import AlikeGroups, GroupAcross
from frtop_tui.statistics.answers import RankAnswer, clock_error
from frtop_tui.statistics.merged_calls import MOST_ROWS, CallSums, ops_by_row, rows_of
from frtop_tui.statistics.module_tree import ModuleKey, ModuleSums, add_modules, module_rows
from frtop_tui.statistics.sampled_ops import JoinedGroup, RowKey

MOST_STEPS: Final = 4096
"""Steps of one rank."""
NO_GROUP: Final = ("", 0)


class _Slice:
    """One slice of time: sums of calls, and the time from which each rank's ops are counted."""

    def __init__(self, since_ns: int, until_ns: int) -> None:
        self.since_ns = since_ns
        self.until_ns = until_ns
        self.sums: dict[RowKey, CallSums] = {}
        self.modules: dict[ModuleKey, ModuleSums] = {}
        self.from_ns: dict[int, int] = {}
        self.lost = 0
        self.notes: dict[str, None] = {}


class StatisticsMerger:
    """Takes answers of ranks, slice by slice.

    Args of the constructor: `ranks` and `groups`, if given, limit whose calls and ops count; steps
    are those of all ranks.
    """

    def __init__(
        self,
        ranks: Collection[int] | None = None,
        groups: Collection[GroupKey] | None = None,
    ) -> None:
        self._ranks = frozenset(ranks) if ranks is not None else None
        self._of_groups = frozenset(groups) if groups is not None else None
        self._slices: dict[int, _Slice] = {}
        self._groups: dict[GroupKey, JoinedGroup] = {}
        self._steps: defaultdict[int, deque[StepSplit]] = defaultdict(
            lambda: deque(maxlen=MOST_STEPS)
        )
        self._alike = AlikeGroups()
        self._hosts: set[str] = set()

    def begin(self, number: int, since_ns: int, until_ns: int) -> None:
        """Begins a slice, on the operator's clock; numbers ascend."""
        self._slices[number] = _Slice(since_ns, until_ns)

    def add(self, number: int, answer: RankAnswer) -> None:
        """Adds what one rank did in a slice; call it once per rank and slice."""
        one = self._slices.get(number)
        if one is None or answer.rank in one.from_ns:
            return
        found = answer.statistics
        self._hosts.add(answer.host)
        one.from_ns[answer.rank] = found.from_ns + answer.clock_ns
        one.lost += found.lost
        if found.note:
            one.notes[found.note] = None
        known_steps = self._steps[answer.rank]
        newest = known_steps[-1].number if known_steps else None
        for step in answer.steps():
            if newest is None or step.number != newest:
                known_steps.append(step)
                newest = step.number
        if self._ranks is not None and answer.rank not in self._ranks and not found.samples:
            return
        self._add_ops(number, one, answer)

    def _add_ops(self, number: int, one: _Slice, answer: RankAnswer) -> None:
        if self._ranks is None or answer.rank in self._ranks:
            add_modules(one.modules, answer)
        groups = self._alike.of_rank(answer.groups)
        names = {local: self._alike.name(one) for local, one in groups.items()}
        rows: list[RowKey | None] = [None]
        counted = self._ranks is None or answer.rank in self._ranks
        for call in answer.statistics.calls:
            known = groups.get(call.group)
            key = (
                call.kind,
                names.get(call.group, NO_GROUP),
                answer.site(call.site),
                call.size_class,
                call.p2p,
                call.on_device,
            )
            rows.append(key)
            if call.count and counted and self._is_wanted(known):
                sums = one.sums.get(key)
                if sums is None:
                    if len(one.sums) >= MOST_ROWS:
                        continue
                    sums = one.sums[key] = CallSums()
                sums.add(call, answer.rank, known.key if known is not None else None)
        for sampled in answer.statistics.samples:
            known = groups.get(sampled.group)
            if known is None or not known.exact or not self._is_wanted(known):
                continue
            joined = self._groups.get(known.key)
            if joined is None:
                joined = self._groups[known.key] = JoinedGroup(known)
            joined.add(answer, sampled, rows, number)

    def _is_wanted(self, known: GroupAcross | None) -> bool:
        if self._of_groups is None:
            return True
        return known is not None and known.key in self._of_groups

    def forget(self, before_ns: int) -> None:
        """Forgets slices that ended before that time on the operator's clock."""
        self._slices = {n: one for n, one in self._slices.items() if one.until_ns > before_ns}
        first = min(self._slices, default=0)
        for key, group in list(self._groups.items()):
            group.forget(first)
            if not group.ops:
                del self._groups[key]
        for rank, steps in list(self._steps.items()):
            while steps and steps[0].end_ns < before_ns:
                steps.popleft()
            if not steps:
                del self._steps[rank]

    def build(
        self, errors: Mapping[str, int | None], expected: Collection[int], since_ns: int = 0
    ) -> JobStatistics | None:
        numbers = sorted(n for n, one in self._slices.items() if one.until_ns > since_ns)
        if not numbers:
            return None
        slices = [self._slices[number] for number in numbers]
        begin_ns = slices[0].since_ns if since_ns else 0
        answered = {rank for one in slices for rank in one.from_ns}
        seconds: defaultdict[int, float] = defaultdict(float)
        for one in slices:
            for rank, from_ns in one.from_ns.items():
                seconds[rank] += max(0, one.until_ns - from_ns) / 1e9
        groups = [group.build(errors, numbers[0]) for group in self._groups.values()]
        rows = rows_of(_all_sums(slices), ops_by_row(ops for _, ops in groups), seconds)
        error = clock_error([errors.get(host) for host in self._hosts])
        return JobStatistics(
            since_ns=slices[0].since_ns,
            until_ns=slices[-1].until_ns,
            from_ns=_complete_from(slices, answered),
            ranks=tuple(sorted(answered)),
            missing=tuple(sorted(set(expected) - answered)),
            calls=rows.calls,
            groups=tuple(group for group, _ in groups if group.arrivals),
            steps={
                rank: tuple(step for step in steps if step.end_ns >= begin_ns)
                for rank, steps in sorted(self._steps.items())
            },
            clock_error_ns=error,
            lost=sum(one.lost for one in slices),
            notes=tuple(dict.fromkeys(note for one in slices for note in one.notes)),
            modules=module_rows([one.modules for one in slices]),
            varying=rows.varying,
        )


def _all_sums(slices: list[_Slice]) -> dict[RowKey, CallSums]:
    total: dict[RowKey, CallSums] = {}
    for one in slices:
        for key, sums in one.sums.items():
            total.setdefault(key, CallSums()).merge(sums, newest=one is slices[-1])
    return total


def _complete_from(slices: list[_Slice], ranks: Collection[int]) -> int:
    """The time from which every op of all these ranks is counted."""
    complete = slices[-1].until_ns
    for one in reversed(slices):
        if any(rank not in one.from_ns for rank in ranks) and one is not slices[-1]:
            break
        complete = max(one.since_ns, *one.from_ns.values()) if one.from_ns else one.until_ns
        if complete > one.since_ns:
            break
    return complete

"""Merges what hosts report of slices of time into the statistics of a job.

A window consists of slices, each requested once: so the cost to an agent does not grow with the
window, and the window may be longer than rings reach back.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Mapping, Sequence
from typing import Final, TypeVar

from frtop_probe.statistics.call_columns import MOST_RANKS, fit
from frtop_probe.wire.values import storable
from frtop_tui.job.naming import GroupKey
from frtop_tui.job.statistics import JobStatistics, StepSplit
from frtop_tui.statistics.alike_groups import AlikeGroups, GroupAcross
from frtop_tui.statistics.answers import RankAnswer, clock_error
from frtop_tui.statistics.merged_calls import MOST_ROWS, AlikeRanks, CallSums, ops_by_row, rows_of
from frtop_tui.statistics.module_tree import ModuleKey, ModuleSums, add_modules, module_rows
from frtop_tui.statistics.sampled_ops import JoinedGroup, RowKey

MOST_STEPS: Final = 4096
"""Steps of one rank."""
NO_GROUP: Final = ("", 0)
"""The name of a group that the rank has not told of."""
Seen = TypeVar("Seen")
MOST_SHAPES: Final = 512
"""Most different orders of rows that are remembered."""
DAMAGED: Final = "rows of calls that do not fit together are left out"


class _Slice:
    """One slice of time: sums of calls, and the time from which each rank's ops are counted."""

    def __init__(self, number: int, since_ns: int, until_ns: int) -> None:
        self.number = number
        self.since_ns = since_ns
        self.until_ns = until_ns
        self.sums: dict[RowKey, CallSums] = {}
        self.modules: dict[ModuleKey, ModuleSums] = {}
        self.from_ns: dict[int, int] = {}
        self.lost = 0
        self.notes: dict[str, None] = {}
        self.alike: dict[tuple[object, ...], AlikeRanks] = {}
        """Ranks that are not in `sums` yet, by what they have in common."""


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
        self._rows: dict[RowKey, CallSums] = {}
        """One slice's sums of each row."""
        self._taken = 0
        """Number of ranks that are not in the sums of their slice yet."""
        self._groups: dict[GroupKey, JoinedGroup] = {}
        self._steps: defaultdict[int, deque[StepSplit]] = defaultdict(
            lambda: deque(maxlen=MOST_STEPS)
        )
        self._alike = AlikeGroups()
        self._hosts: set[str] = set()

    def begin(self, number: int, since_ns: int, until_ns: int) -> None:
        """Begins a slice, on the operator's clock; numbers ascend."""
        self._slices[number] = _Slice(number, since_ns, until_ns)

    def add(self, number: int, answer: RankAnswer) -> None:
        """Adds what one rank did in a slice; call it once per rank and slice, in their order."""
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
        rows = self._add_calls(one, answer, groups)
        for sampled in answer.statistics.samples:
            known = groups.get(sampled.group)
            if known is None or not known.exact:
                continue
            if self._of_groups is not None and known.key not in self._of_groups:
                continue
            joined = self._groups.get(known.key)
            if joined is None:
                joined = self._groups[known.key] = JoinedGroup(known)
            joined.add(answer, sampled, rows, number)

    def _add_calls(
        self, one: _Slice, answer: RankAnswer, groups: Mapping[int, GroupAcross]
    ) -> Sequence[RowKey | None]:
        """Returns the key of each row, from place 1 on."""
        calls = answer.statistics.rows
        if calls is None:
            return (None,)
        if not fit(calls):
            one.notes[DAMAGED] = None
            return (None,)
        names = {local: self._alike.name(group) for local, group in groups.items()}
        by_row = tuple(map(names.get, calls.group))
        if self._ranks is not None and answer.rank not in self._ranks:
            counted = (False,) * len(calls.count)
        elif self._of_groups is None:
            counted = tuple(map(bool, calls.count))
        else:
            local = {number for number, of in groups.items() if of.key in self._of_groups}
            counted = tuple(
                count != 0 and group in local
                for count, group in zip(calls.count, calls.group, strict=True)
            )
        shape = (calls.kind, calls.group, by_row, calls.site, calls.size_class, calls.p2p,
                 calls.on_device, calls.width, answer.sites, counted)  # fmt: skip
        alike = one.alike.get(shape)
        if alike is None:
            if len(one.alike) >= MOST_SHAPES:
                self._add_up()
                one.alike.clear()
            keys = [
                (kind, name or NO_GROUP, answer.site(site), size_class, p2p, on_device)
                for kind, name, site, size_class, p2p, on_device in zip(
                    calls.kind, by_row, calls.site, calls.size_class, calls.p2p, calls.on_device,
                    strict=True,
                )
            ]  # fmt: skip
            sums = [
                self._sums(one, key) if counts else None
                for key, counts in zip(keys, counted, strict=True)
            ]
            alike = one.alike[shape] = AlikeRanks(keys, sums, calls.group)
        if any(counted):
            alike.take(answer.rank, calls, groups)
            self._taken += 1
            if self._taken >= MOST_RANKS:
                self._add_up()
        return alike.keys

    def _add_up(self) -> None:
        """Adds all ranks to the sums, by slice: sums keep in which one a rank was last seen."""
        for one in self._slices.values():
            for alike in one.alike.values():
                alike.add_up(one.number)
        self._taken = 0

    def _sums(self, one: _Slice, key: RowKey) -> CallSums | None:
        """The sums of a row in a slice; None if there are too many."""
        if key not in one.sums and len(one.sums) < MOST_ROWS:
            one.sums[key] = self._new_sums(key)
        return one.sums.get(key)

    def _new_sums(self, key: RowKey) -> CallSums:
        """Empty sums of a row for another slice."""
        like = self._rows.get(key)
        sums = CallSums({}, {}) if like is None else CallSums(like.ranks, like.groups)
        self._rows[key] = sums
        return sums

    def forget(self, before_ns: int) -> None:
        """Forgets slices that ended before that time on the operator's clock."""
        self._slices = {n: one for n, one in self._slices.items() if one.until_ns > before_ns}
        self._rows = {key: sums for one in self._slices.values() for key, sums in one.sums.items()}
        first = min(self._slices, default=0)
        for sums in self._rows.values():
            _forget(sums.ranks, first)
            _forget(sums.groups, first)
        self._alike.forget()
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
        self._add_up()
        for one in slices:
            one.alike.clear()
        begin_ns = slices[0].since_ns if since_ns else 0
        answered = {rank for one in slices for rank in one.from_ns}
        seconds = dict.fromkeys(answered, 0.0)
        for one in slices:
            for rank, from_ns in one.from_ns.items():
                if from_ns < one.until_ns:
                    seconds[rank] += (one.until_ns - from_ns) / 1e9
        groups = [group.build(errors, numbers[0]) for group in self._groups.values()]
        rows = rows_of(_all_sums(slices, numbers[0]), ops_by_row(ops for _, ops in groups), seconds)
        error = clock_error([errors.get(host) for host in self._hosts])
        return JobStatistics(
            since_ns=slices[0].since_ns,
            until_ns=slices[-1].until_ns,
            from_ns=_complete_from(slices, len(answered)),
            ranks=tuple(sorted(answered)),
            missing=tuple(sorted(set(expected) - answered)),
            calls=rows.calls,
            groups=tuple(group for group, _ in groups if group.arrivals),
            steps={
                rank: tuple(step for step in steps if step.end_ns >= begin_ns)
                for rank, steps in sorted(self._steps.items())
            },
            clock_error_ns=error,
            lost=storable(sum(one.lost for one in slices)),
            notes=tuple(dict.fromkeys(note for one in slices for note in one.notes)),
            modules=module_rows([one.modules for one in slices]),
            varying=rows.varying,
        )


def _all_sums(slices: list[_Slice], first: int) -> dict[RowKey, CallSums]:
    """The sums of these slices, the last ones from number `first` on."""
    total: dict[RowKey, CallSums] = {}
    for one in slices:
        for key, sums in one.sums.items():
            if key not in total:
                total[key] = CallSums(_since(first, sums.ranks), _since(first, sums.groups))
            total[key].merge(sums, newest=one is slices[-1])
    return total


def _since(first: int, seen: dict[Seen, int]) -> dict[Seen, int]:
    """What was last seen in slice `first` or later."""
    if min(seen.values(), default=first) >= first:
        return seen
    return {one: number for one, number in seen.items() if number >= first}


def _forget(seen: dict[Seen, int], first: int) -> None:
    """Forgets what was last seen before slice `first`."""
    if min(seen.values(), default=first) < first:
        for one in [one for one, number in seen.items() if number < first]:
            del seen[one]


def _complete_from(slices: list[_Slice], ranks: int) -> int:
    """The time from which every op of all ranks is counted; `ranks` is their number."""
    complete = slices[-1].until_ns
    for one in reversed(slices):
        if len(one.from_ns) < ranks and one is not slices[-1]:
            break
        complete = max(one.since_ns, *one.from_ns.values()) if one.from_ns else one.until_ns
        if complete > one.since_ns:
            break
    return complete

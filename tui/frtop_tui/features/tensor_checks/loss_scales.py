"""The loss scale of mixed precision: where it backed off, and which rank has another one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from frtop_tui.features.tensor_checks.samples import RankSample
from frtop_tui.job.rank_sides import RankSide, odd_ranks, sides_of

Update = tuple[int, int]
"""A step, and the number of the update in it: skipped steps do not count."""


@dataclass(frozen=True, slots=True)
class BackOff:
    """An update after an Inf or NaN in the gradients of `ranks`, which skipped the step.

    `before` and `after` are the scale of the lowest of them, None if not known.
    """

    step: int
    ranks: tuple[int, ...]
    before: float | None
    after: float | None


@dataclass(frozen=True, slots=True)
class ScaleDifference:
    """The first update after which ranks have different scales."""

    step: int
    sides: tuple[RankSide, ...]
    odd: tuple[int, ...]
    equal_before: int  # the last step before it at which all had one; -1 for none


@dataclass(frozen=True, slots=True)
class ScaleHistory:
    """One scaler. `first` and `last` are steps with the scale of the lowest rank."""

    scaler: str
    ranks: tuple[int, ...]
    updates: int  # of the rank with the most
    first: tuple[int, float] | None
    last: tuple[int, float] | None
    back_offs: tuple[BackOff, ...] = ()
    difference: ScaleDifference | None = None
    unread: str = ""  # why no scale was read
    newest: Mapping[int, int] = field(default_factory=dict)  # by rank: the step of its last update
    left_out: frozenset[tuple[int, int]] = frozenset()  # ranks with steps that had an Inf or NaN


@dataclass(slots=True)
class _Scaler:
    scales: defaultdict[int, dict[Update, float]]
    found: defaultdict[Update, set[int]]
    newest: dict[int, Update] = field(default_factory=dict)
    unread: str = ""

    def is_complete(self, update: Update) -> bool:
        """Whether every rank has said whether it found an Inf or NaN."""
        return all(update <= newest for newest in self.newest.values())


def scale_histories(samples: Iterable[RankSample]) -> tuple[ScaleHistory, ...]:
    """One history per scaler; `samples` are updates, each rank's in order."""
    scalers: defaultdict[str, _Scaler] = defaultdict(
        lambda: _Scaler(defaultdict(dict), defaultdict(set))
    )
    for one in samples:
        scaler, sample = scalers[one.sample.taken], one.sample
        update = sample.step, sample.number
        scaler.unread = scaler.unread or sample.error
        scaler.newest[one.rank] = update
        if sample.role == "found_inf":
            if sample.maximum or sample.nans or sample.infinities:
                scaler.found[update].add(one.rank)
        elif sample.maximum is not None:
            scaler.scales[one.rank][update] = sample.maximum
    return tuple(_history(name, scaler) for name, scaler in sorted(scalers.items()))


def _history(name: str, scaler: _Scaler) -> ScaleHistory:
    scales = scaler.scales
    ranks = tuple(sorted(scales))
    first = last = None
    if ranks:
        lowest = [(update[0], value) for update, value in scales[ranks[0]].items()]
        first, last = lowest[0], lowest[-1]
    return ScaleHistory(
        name,
        ranks,
        max(map(len, scales.values()), default=0),
        first,
        last,
        tuple(
            _back_off(update, found, scales)
            for update, found in sorted(scaler.found.items())
            if scaler.is_complete(update)
        ),
        _difference(scales),
        "" if ranks else scaler.unread,
        {rank: newest[0] for rank, newest in scaler.newest.items()},
        frozenset((rank, update[0]) for update, found in scaler.found.items() for rank in found),
    )


def _back_off(
    update: Update, found: set[int], scales: Mapping[int, Mapping[Update, float]]
) -> BackOff:
    of_rank = scales.get(min(found), {})
    before = [value for earlier, value in of_rank.items() if earlier < update]
    return BackOff(
        update[0], tuple(sorted(found)), before[-1] if before else None, of_rank.get(update)
    )


def _difference(scales: Mapping[int, Mapping[Update, float]]) -> ScaleDifference | None:
    """The first difference, after the first step: a rank may have begun to count late there."""
    if len(scales) < 2:
        return None
    begun = max(next(iter(of_rank))[0] for of_rank in scales.values())
    common = set.intersection(*(set(of_rank) for of_rank in scales.values()))
    before = -1
    for update in sorted(one for one in common if one[0] > begun):
        sides = sides_of((rank, f"{of_rank[update]:,.6g}") for rank, of_rank in scales.items())
        if len(sides) > 1:
            return ScaleDifference(update[0], sides, odd_ranks(sides), before)
        before = update[0]
    return None

"""Chooses ops of each group, so that all its ranks tell of the same ones.

One in `stride`, a power of two, is chosen by its number alone. Ranks with about as many ops choose
the same stride; otherwise both choose the ops of the larger one. The sample is not every n-th op: a
program issues the same few ops in each step, so most of its lines would never be in it.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cache
from typing import Final

from frtop_probe import wire
from frtop_probe.history_columns import pack
from frtop_probe.statistics.calls import OpClass, OpFields

MAX_SAMPLES: Final = 4096
"""Ops of one group of one rank, whatever is asked for."""
_WORD: Final = 2**32
_PLACES: Final = 2**16 - 1
_Sample = tuple[int, int, int, int, int]
"""Number, issued, took as on the wire, bytes, row of the call."""


@cache
def _mixed() -> Sequence[int]:
    """By the last 16 bits of a number, a value below 2**32 that has nothing to do with it.

    A look-up costs a quarter of what the mixing does, and agents do it for every op.
    """
    values = array("I")
    for number in range(_PLACES + 1):
        mixed = (number + 1) * 0x9E3779B1 % _WORD
        mixed = (mixed ^ mixed >> 15) * 0x85EBCA6B % _WORD
        values.append((mixed ^ mixed >> 13) * 0xC2B2AE35 % _WORD)
    return values


def is_chosen(number: int, stride: int) -> bool:
    """Whether this op is in the 1-in-`stride` sample; `stride` is a power of two."""
    return _mixed()[number & _PLACES] * stride < _WORD


class Sampler:
    """Collects the collectives of one rank."""

    def __init__(self, most: int) -> None:
        """Keeps at most `most` ops of each group, spread evenly."""
        self._most = max(1, min(most, MAX_SAMPLES))
        self._limits: defaultdict[int, int] = defaultdict(lambda: _WORD)
        """By group: 2**32 divided by its stride."""
        self._samples: defaultdict[int, list[_Sample]] = defaultdict(list)

    def add(self, ops: OpFields, resolve: Callable[[int], OpClass] | None = None) -> None:
        """Adds ops; `resolve` gives the full class of the one at a place, see `RankSummary`."""
        limits, mixed = self._limits, _mixed()
        chosen = [
            place
            for place, (one, number) in enumerate(zip(ops.classes, ops.number, strict=True))
            if one.collective and mixed[number & _PLACES] < limits[one.group]
        ]
        for place in chosen:
            one, number = ops.classes[place], ops.number[place]
            if mixed[number & _PLACES] < limits[one.group]:
                full = one if resolve is None else resolve(place)
                self._put(full, number, ops.issued[place], ops.took[place])

    def _put(self, one: OpClass, number: int, issued: int, took: int) -> None:
        """Adds an op; drops every other one where there are too many."""
        group, limits, mixed = one.group, self._limits, _mixed()
        samples = self._samples[group]
        samples.append((number, issued, _as_sent(one, took), one.size, one.call))
        while len(samples) > self._most and limits[group] > 1:
            limit = limits[group] = limits[group] // 2
            samples[:] = [one for one in samples if mixed[one[0] & _PLACES] < limit]

    @property
    def calls(self) -> list[int]:
        """Rows that the samples are of."""
        return list({sample[4] for samples in self._samples.values() for sample in samples})

    def build(self, places: list[int]) -> tuple[wire.SampledOps, ...]:
        """Returns what is sent; `places` are the places of the rows that are sent."""
        found = []
        for group, samples in self._samples.items():
            if not samples:
                continue
            number, issued, took, size, call = zip(*sorted(samples), strict=True)
            found.append(
                wire.SampledOps(
                    group,
                    _WORD // self._limits[group],
                    pack(number),
                    pack(issued),
                    pack(took),
                    pack(size),
                    pack([places[one] for one in call]),
                    count=len(samples),
                )
            )
        return tuple(found)


def _as_sent(one: OpClass, took: int) -> int:
    """How long an op took, as `wire.SampledOps` has it."""
    if took > 0 and one.exact:
        return took
    if took > 0 and one.late:
        return -took
    return 0 if not took and (one.exact or one.late) else -1

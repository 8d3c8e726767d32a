"""Samples ops of each group, so that all its ranks report the same ones.

One op in `stride`, a power of two, is chosen by its number alone. Ranks with similar numbers of ops
use the same stride; if not, they still share the ops of the larger stride. The sample is not every
n-th op: a program issues the same few ops in each step, so most lines would never be sampled.
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
"""Most ops of one group of one rank, whatever is requested."""
_WORD: Final = 2**32
_PLACES: Final = 2**16 - 1
_Sample = tuple[int, int, int, int, int]
"""Number, issue time, duration as in `wire.SampledOps`, bytes, row of the call."""


@cache
def _mixed() -> Sequence[int]:
    """Returns pseudo-random values below 2**32, indexed by the last 16 bits of a number.

    Agents do this for every op; a look-up costs a quarter of the computation.
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
        """2**32 divided by the stride, by group."""
        self._samples: defaultdict[int, list[_Sample]] = defaultdict(list)

    def add(self, ops: OpFields, resolve: Callable[[int], OpClass] | None = None) -> None:
        """Adds ops; `resolve` returns the full class of the op at a place, see `RankSummary`."""
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
        """Adds an op; if there are too many, drops every other one."""
        group, limits, mixed = one.group, self._limits, _mixed()
        samples = self._samples[group]
        samples.append((number, issued, _as_sent(one, took), one.size, one.call))
        while len(samples) > self._most and limits[group] > 1:
            limit = limits[group] = limits[group] // 2
            samples[:] = [one for one in samples if mixed[one[0] & _PLACES] < limit]

    @property
    def calls(self) -> list[int]:
        """Returns the row of each sample."""
        return list({sample[4] for samples in self._samples.values() for sample in samples})

    def build(self, places: list[int]) -> tuple[wire.SampledOps, ...]:
        """Returns the samples to send; `places` gives each row's place among the sent rows."""
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
    """Returns how long an op took, as in `wire.SampledOps`."""
    if took > 0 and one.exact:
        return took
    if took > 0 and one.late:
        return -took
    return 0 if not took and (one.exact or one.late) else -1

"""Chooses ops of each group, so that all its ranks tell of the same ones.

Chosen are numbers that are multiples of a power of two. Ranks that have issued about as many ops
choose the same power; where they do not, the multiples of the larger one are multiples of both.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Final

from frtop_probe import wire
from frtop_probe.history_columns import pack
from frtop_probe.statistics.calls import OpClass, OpFields

MAX_SAMPLES: Final = 4096
"""Ops of one group of one rank, whatever is asked for."""
_Sample = tuple[int, int, int, int, int]
"""Number, issued, took as on the wire, bytes, row of the call."""


class Sampler:
    """Collects the collectives of one rank."""

    def __init__(self, most: int) -> None:
        """Keeps at most `most` ops of each group, spread evenly."""
        self._most = max(1, min(most, MAX_SAMPLES))
        self.masks: defaultdict[int, int] = defaultdict(int)
        """By group: the stride minus one."""
        self._samples: defaultdict[int, list[_Sample]] = defaultdict(list)

    def add(self, ops: OpFields, resolve: Callable[[int], OpClass] | None = None) -> None:
        """Adds ops; `resolve` gives the full class of the one at a place, see `RankSummary`."""
        masks = self.masks
        chosen = [
            place
            for place, (one, number) in enumerate(zip(ops.classes, ops.number, strict=True))
            if one.collective and not number & masks[one.group]
        ]
        for place in chosen:
            one, number = ops.classes[place], ops.number[place]
            if not number & masks[one.group]:
                full = one if resolve is None else resolve(place)
                self._put(full, number, ops.issued[place], ops.took[place])

    def _put(self, one: OpClass, number: int, issued: int, took: int) -> None:
        """Adds an op; drops every other one where there are too many."""
        group, masks = one.group, self.masks
        samples = self._samples[group]
        samples.append((number, issued, _as_sent(one, took), one.bytes, one.call))
        while len(samples) > self._most and masks[group] < 2**62:
            mask = masks[group] = 2 * masks[group] + 1
            samples[:] = [sample for sample in samples if not sample[0] & mask]

    @property
    def calls(self) -> list[int]:
        """Rows that the samples are of."""
        return list({sample[4] for samples in self._samples.values() for sample in samples})

    def build(self, places: list[int]) -> tuple[wire.SampledOps, ...]:
        """What is sent; `places` are those of the rows that are sent."""
        found = []
        for group, samples in self._samples.items():
            if not samples:
                continue
            number, issued, took, size, call = zip(*sorted(samples), strict=True)
            found.append(
                wire.SampledOps(
                    group,
                    self.masks[group] + 1,
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

"""Sampled stacks of ranks."""

from __future__ import annotations

from msgspec import Struct


class RankSamples(Struct, frozen=True):
    """Sampled stacks of one rank, outermost frame first, or why there are none."""

    rank: int
    stacks: tuple[tuple[tuple[str, ...], int], ...] = ()
    seconds: float = 0.0
    rate: int = 0
    missed: int = 0
    text: str = ""


class SampledStacks(Struct, frozen=True):
    """Of all ranks that were asked for; `waiting` have not answered yet."""

    ranks: tuple[RankSamples, ...] = ()
    waiting: tuple[int, ...] = ()
    since_ns: int = 0  # operator's clock: when they were asked for

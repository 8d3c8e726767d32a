"""Sums ops by issuing module and phase, over ranks and slices of time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from frtop_probe import wire
from frtop_tui.job.statistics import ModuleRow
from frtop_tui.statistics.answers import RankAnswer

MOST_MODULES: Final = 20_000
"""Most rows of one slice: each stage of a pipeline has its own modules."""
ModuleKey = tuple[wire.Issuer, str]
"""Issuer and kind of op."""


class ModuleSums:
    __slots__ = ("bytes", "count", "ranks")

    def __init__(self) -> None:
        self.count = self.bytes = 0
        self.ranks: set[int] = set()

    def add(self, count: int, size: int, ranks: Iterable[int]) -> None:
        self.count += count
        self.bytes += size
        self.ranks.update(ranks)


def add_modules(sums: dict[ModuleKey, ModuleSums], answer: RankAnswer) -> None:
    """Adds one rank's answer, except ops without an issuer."""
    issuers = answer.issuers
    for row in answer.statistics.modules:
        if not 0 < row.issuer <= len(issuers):
            continue
        key = issuers[row.issuer - 1], row.kind
        found = sums.get(key)
        if found is None:
            if len(sums) >= MOST_MODULES:
                continue
            found = sums[key] = ModuleSums()
        found.add(row.count, row.bytes, (answer.rank,))


def module_rows(slices: Iterable[Mapping[ModuleKey, ModuleSums]]) -> tuple[ModuleRow, ...]:
    total: dict[ModuleKey, ModuleSums] = {}
    for sums in slices:
        for key, one in sums.items():
            total.setdefault(key, ModuleSums()).add(one.count, one.bytes, one.ranks)
    return tuple(
        ModuleRow(issuer, kind, tuple(sorted(one.ranks)), one.count, one.bytes)
        for (issuer, kind), one in total.items()
    )

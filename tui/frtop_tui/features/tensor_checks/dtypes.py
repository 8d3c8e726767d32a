"""Ranks whose tensors have another dtype than the same tensors of the others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from frtop_probe import wire
from frtop_tui.features.tensor_checks.samples import RankSample
from frtop_tui.job.groups import Identifier
from frtop_tui.job.rank_sides import RankSide, odd_ranks, sides_of


@dataclass(frozen=True, slots=True)
class DtypeDifference:
    """The first op or step at which dtypes differ. The values of `sides` are dtypes."""

    role: str
    step: int
    sides: tuple[RankSide, ...]
    odd: tuple[int, ...]
    group: Identifier | None = None  # of an op
    number: int = 0
    kind: str = ""
    optimizer: str = ""
    names: tuple[str, ...] = ()  # of the parameters that differ
    read: int = 0  # of how many
    issuer: wire.Issuer | None = None  # of an op


def op_dtypes(
    group: Identifier, by_number: Mapping[int, Sequence[RankSample]]
) -> DtypeDifference | None:
    """The first op of a group that members issued with different dtypes."""
    for number in sorted(by_number):
        ones = [one for one in by_number[number] if one.sample.dtype]
        if len({one.sample.dtype for one in ones}) > 1:
            first = ones[0].sample
            if len({one.sample.kind for one in ones}) == 1:
                sides = sides_of((one.rank, one.sample.dtype) for one in ones)
                return DtypeDifference(
                    first.role, first.step, sides, odd_ranks(sides), group, number, first.kind,
                    issuer=ones[0].issuer,
                )  # fmt: skip
    return None


def step_dtypes(
    optimizer: str, role: str, by_step: Mapping[int, Sequence[RankSample]], asked: int
) -> DtypeDifference | None:
    """The first step at which the same parameters have different dtypes.

    Stages of a pipeline have other parameters, by name and size, and are not compared.
    """
    for step in sorted(by_step):
        by_rank: dict[int, dict[int, RankSample]] = {}
        for one in by_step[step]:
            if one.sample.dtype:
                by_rank.setdefault(one.rank, {})[one.sample.number] = one
        if len(by_rank) < max(2, asked):
            continue
        layouts = {str(_layout(of_rank.values())) for of_rank in by_rank.values()}
        sides = sides_of((rank, _dtypes(of_rank)) for rank, of_rank in by_rank.items())
        if len(layouts) == 1 and len(sides) > 1:
            places = sorted(next(iter(by_rank.values())))
            odd = [
                place for place in places
                if len({of_rank[place].sample.dtype for of_rank in by_rank.values()}) > 1
            ]  # fmt: skip
            first = {rank: of_rank[odd[0]].sample for rank, of_rank in by_rank.items()}
            names = tuple(next(iter(by_rank.values()))[place].name for place in odd)
            return DtypeDifference(
                role, step, sides_of((rank, one.dtype) for rank, one in first.items()),
                odd_ranks(sides), optimizer=optimizer, names=names, read=len(places),
            )  # fmt: skip
    return None


def _layout(ones: Iterable[RankSample]) -> list[tuple[int, str, int]]:
    """Without the sizes of shards, which may differ by a row."""
    found = ((one.sample.number, one.sample.kind, _elements(one)) for one in ones)
    return sorted(found)


def _elements(one: RankSample) -> int:
    return -1 if one.sample.shard else one.sample.elements


def _dtypes(of_rank: Mapping[int, RankSample]) -> str:
    return " ".join(of_rank[place].sample.dtype for place in sorted(of_rank))

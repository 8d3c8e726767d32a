"""The mesh of a job, as dp x pp x tp, found from the members of its groups alone.

A dimension is a set of groups of one size that hold every rank once. Dimensions are a mesh when
each of their combinations names exactly one rank. Groups that are no dimension, such as those of
only some ranks, do not matter; without any dimensions there is no mesh, and `NoMesh` says why.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from math import prod
from typing import Final

from frtop_tui.job.groups import Identifier, identifier
from frtop_tui.job.model import GroupView
from frtop_tui.job.naming import listed
from frtop_tui.job.units import counted

MOST_FAMILIES: Final = 16
"""At most this many sets of groups are combined: each pair costs a look at all ranks."""
_NUMBERED: Final = re.compile(r"[:_.\-\[\s]*\d+\]?$")
_AROUND: Final = re.compile(r"^mesh_|_(parallel_)?(process_)?group$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Dimension:
    """One axis: each of its groups has `size` ranks."""

    name: str
    size: int
    coordinates: Mapping[int, int]
    """Each rank's position on this axis."""


@dataclass(frozen=True, slots=True)
class Mesh:
    """The axes, outermost first, and the other sets of groups in terms of them."""

    dimensions: tuple[Dimension, ...]
    others: tuple[tuple[str, str], ...] = ()
    """Such as `dp_cp` and `dp x cp`; or `ep` and `within dp x cp`."""
    axes: Mapping[Identifier, str] = field(default_factory=dict)
    """By group: the name of its axis, or of its set."""

    @property
    def shape(self) -> str:
        """`dp 8 x tp 4 x pp 2`."""
        return " x ".join(f"{one.name} {one.size}" for one in self.dimensions)

    def place(self, members: Sequence[int]) -> str:
        """The position of a group on the axes that its ranks do not spread over: `tp 1, pp 0`."""
        fixed = [
            f"{one.name} {one.coordinates[members[0]]}"
            for one in self.dimensions
            if members and len({one.coordinates.get(rank, -1) for rank in members}) == 1
        ]
        return ", ".join(fixed)


@dataclass(frozen=True, slots=True)
class NoMesh:
    """Why there is no mesh."""

    reason: str


@dataclass(slots=True)
class _Family:
    """Groups of one size that hold every rank once."""

    names: list[str]
    groups: list[GroupView]
    of_rank: dict[int, int]

    @property
    def size(self) -> int:
        return len(self.groups[0].members)

    @property
    def span(self) -> int:
        """How far apart its ranks are: the furthest on the outermost axis."""
        members = self.groups[0].members
        return members[1] - members[0]

    @property
    def name(self) -> str:
        return "/".join(dict.fromkeys(filter(None, self.names))) or f"of {self.size}"


def find_mesh(groups: Iterable[GroupView]) -> Mesh | NoMesh:
    """Finds the mesh with the most axes that the groups of a job form.

    This visits every rank a few times: call it again only when groups come or go.
    """
    known = list(groups)
    everybody = {rank for group in known for rank in group.members}
    if not everybody:
        return NoMesh("no groups known")
    families, partial = _families(known, everybody)
    if not families:
        return NoMesh(_nothing_regular(partial, everybody))
    chosen = _largest(families, len(everybody))
    coordinates = _coordinates(chosen, everybody) if chosen else None
    if coordinates is None:
        sizes = listed([f"{one.name} {one.size}" for one in families], 4)
        return NoMesh(f"groups of {sizes} do not combine into {counted(len(everybody), 'rank')}")
    axes = [Dimension(one.name, one.size, at) for one, at in zip(chosen, coordinates, strict=True)]
    others = tuple(
        (one.name, _in_terms(one, axes)) for one in families if all(one is not c for c in chosen)
    )
    of_group = {identifier(group.key): one.name for one in families for group in one.groups}
    return Mesh(tuple(axes), others, of_group)


def _families(
    groups: Sequence[GroupView], everybody: set[int]
) -> tuple[list[_Family], list[tuple[str, int]]]:
    """Sets of groups that hold every rank once; and the other sets, by name and number of ranks."""
    alike: dict[tuple[str, int], list[GroupView]] = {}
    for group in groups:
        size = len(group.members)
        if 1 < size < len(everybody):
            alike.setdefault((_stem(group), size), []).append(group)
    found: dict[frozenset[tuple[int, ...]], _Family] = {}
    partial: list[tuple[str, int]] = []
    for (stem, _), members in alike.items():
        for layer in _layers(members):
            of_rank = {rank: n for n, group in enumerate(layer) for rank in group.members}
            if len(of_rank) < len(everybody):
                partial.append((stem, len(of_rank)))
                continue
            same = found.setdefault(
                frozenset(group.members for group in layer), _Family([], [], of_rank)
            )
            same.names.append(stem)
            same.groups.extend(layer)
    families = sorted(found.values(), key=lambda one: (-one.span, -one.size, one.name))
    return families[:MOST_FAMILIES], partial


def _layers(groups: Iterable[GroupView]) -> list[list[GroupView]]:
    """Splits the groups into sets that share no rank, in the order of their creation."""
    layers: list[tuple[set[int], list[GroupView]]] = []
    for group in groups:
        fits = next((one for one in layers if one[0].isdisjoint(group.members)), None)
        if fits is None:
            fits = (set(), [])
            layers.append(fits)
        if len(layers) > MOST_FAMILIES:
            return []
        fits[0].update(group.members)
        fits[1].append(group)
    return [layer for _, layer in layers]


def _stem(group: GroupView) -> str:
    """`tp` for `tp:4`, `mesh_tp` and `TP_GROUP`; "" for a group without a description."""
    text = group.description if group.description != "undefined" else ""
    if not text:
        text = "" if group.key.name.isdigit() else group.key.name
    return _AROUND.sub("", _NUMBERED.sub("", text)).lower()


def _largest(families: Sequence[_Family], world: int) -> list[_Family]:
    """The largest set of families whose sizes multiply to `world` and that meet in single ranks."""
    fit = {
        (a, b)
        for a, b in combinations(range(len(families)), 2)
        if families[a].size * families[b].size <= world and _meet_once(families[a], families[b])
    }
    best: list[int] = []
    best_rank: tuple[int, int] = (0, 0)
    stack: list[tuple[list[int], int]] = [([], 0)]
    while stack:
        taken, first = stack.pop()
        size = prod(families[n].size for n in taken)
        if size == world and len(taken) > 1:
            rank = (len(taken), sum(bool(any(families[n].names)) for n in taken))
            if rank > best_rank:
                best, best_rank = taken, rank
            continue
        stack += [
            ([*taken, n], n + 1)
            for n in range(len(families) - 1, first - 1, -1)
            if world % (size * families[n].size) == 0 and all((m, n) in fit for m in taken)
        ]
    return [families[n] for n in best]


def _meet_once(one: _Family, other: _Family) -> bool:
    """Whether no group of one family shares two ranks with a group of the other."""
    of_rank = other.of_rank.__getitem__
    return all(len(set(map(of_rank, group.members))) == one.size for group in one.groups)


def _coordinates(chosen: Sequence[_Family], everybody: set[int]) -> list[dict[int, int]] | None:
    """Each rank's coordinate by axis; None if a combination does not name a single rank."""
    found: list[dict[int, int]] = []
    for axis in chosen:
        others = [group for other in chosen if other is not axis for group in other.groups]
        at = _by_order(axis, others) or _by_connection(axis, others, everybody)
        if at is None:
            return None
        found.append(at)
    places = set(zip(*[map(at.__getitem__, everybody) for at in found], strict=True))
    return found if len(places) == len(found[0]) else None


def _by_order(axis: _Family, others: Sequence[GroupView]) -> dict[int, int] | None:
    """Each rank's position in its group, if it is the same all along the other axes."""
    at = {rank: n for group in axis.groups for n, rank in enumerate(group.members)}
    of_rank = at.__getitem__
    if all(len(set(map(of_rank, group.members))) == 1 for group in others):
        return at
    return None


def _by_connection(
    axis: _Family, others: Sequence[GroupView], everybody: Iterable[int]
) -> dict[int, int] | None:
    """The same for ranks in another order: groups of the other axes connect equal coordinates."""
    above: dict[int, int] = {}

    def top(rank: int) -> int:
        while (next_one := above.get(rank, rank)) != rank:
            above[rank] = above.get(next_one, next_one)
            rank = next_one
        return rank

    for group in others:
        first = top(group.members[0])
        for rank in group.members:
            last = top(rank)
            if last != first:
                above[last] = first
    numbers: dict[int, int] = {}
    at = {rank: numbers.setdefault(top(rank), len(numbers)) for rank in sorted(everybody)}
    return at if len(numbers) == axis.size else None


def _in_terms(family: _Family, axes: Sequence[Dimension]) -> str:
    """`dp x cp` for groups that spread over exactly these axes, else `within dp x cp`."""
    members = family.groups[0].members
    over = [one for one in axes if len({one.coordinates[rank] for rank in members}) > 1]
    words = " x ".join(one.name for one in over)
    return words if prod(one.size for one in over) == family.size else f"within {words}"


def _nothing_regular(partial: Sequence[tuple[str, int]], everybody: set[int]) -> str:
    if not partial:
        return "every group has either all ranks or just one"
    name, ranks = max(partial, key=lambda one: one[1])
    there = f"groups {name}" if name else "groups of one size"
    return (
        f"no set of groups contains each rank exactly once: {there} hold {ranks:,} of"
        f" {len(everybody):,}"
    )

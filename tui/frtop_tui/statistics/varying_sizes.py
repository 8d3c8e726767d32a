"""Ops of one line whose sizes vary: which classes of size stand in one row of a table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from frtop_probe import wire
from frtop_tui.statistics.sampled_ops import JoinedOp, RowKey

MOST_SIZES: Final = 4
"""Classes of size of one line that have rows of their own."""
Place = tuple[str, tuple[str, int], wire.Site | None, bool, bool]
"""What the classes of one line have in common."""


def varying(
    keys: Iterable[RowKey], ops: Mapping[RowKey, Mapping[int, Sequence[JoinedOp]]]
) -> Iterator[list[RowKey]]:
    """The rows that are one row in a table.

    Either their classes are many, or the members of one op give it different sizes: then skew, and
    who comes last, are of no class by itself.

    Args:
        keys: of all rows.
        ops: sampled ones of each row, by group.
    """
    by_place: defaultdict[Place, list[RowKey]] = defaultdict(list)
    for key in keys:
        by_place[_place(key)].append(key)
    for place, several in by_place.items():
        if len(several) > MOST_SIZES or (
            len(several) > 1 and _have_ops_in_common(place, several, ops)
        ):
            yield sorted(several, key=lambda key: key[3])


def _place(key: RowKey) -> Place:
    kind, groups, site, _, p2p, on_device = key
    return kind, groups, site, p2p, on_device


def _have_ops_in_common(
    place: Place, keys: Sequence[RowKey], ops: Mapping[RowKey, Mapping[int, Sequence[JoinedOp]]]
) -> bool:
    joined = (op for key in keys for of_group in ops.get(key, {}).values() for op in of_group)
    return any(
        len(op.rows) > 1 and sum(_place(row) == place for row in op.rows) > 1 for op in joined
    )

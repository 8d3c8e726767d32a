"""Packs the ops of a history by field: a third of the bytes of rows, and a tenth of the time.

Consecutive ops differ little, so each column holds the differences, in the narrowest width that
fits them. Columns may come from anybody: unpacking gives no more rows than there are bytes.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from contextlib import suppress
from itertools import accumulate
from operator import sub
from typing import Final

from frtop_probe import wire

FIELDS: Final = wire.HistoryColumns.__struct_fields__
_CODES: Final = {1: "b", 2: "h", 4: "i", 8: "q"}
_WIDEST: Final = 2**63
MOST_ROWS: Final = 2**20
"""Values of a single column: equal ones take no bytes, so the bytes do not bound their number."""
Columns = tuple[Sequence[int], ...]


def pack(values: Sequence[int]) -> wire.HistoryColumn:
    """Packs one field of at least one row.

    Raises:
        OverflowError: two neighbours differ by 2**63 or more.
    """
    if values.count(values[0]) == len(values):
        return wire.HistoryColumn(int(values[0]))
    differences = list(map(sub, values[1:], values))
    width, packed = _narrowest(differences)
    if sys.byteorder == "big":
        packed.byteswap()
    return wire.HistoryColumn(int(values[0]), width, packed.tobytes())


def pack_rows(columns: Columns) -> wire.HistoryColumns | None:
    """Packs the fields of rows, in the order of `FIELDS`; None without rows."""
    if not columns[0]:
        return None
    first, *others = map(pack, columns)
    if not first.width:  # one row, or a damaged ring; then it must have the number of rows
        first = wire.HistoryColumn(first.first, 1, bytes(len(columns[0]) - 1))
    return wire.HistoryColumns(first, *others)


def length(columns: wire.HistoryColumns) -> int:
    """The number of rows, without unpacking them.

    Raises:
        ValueError: the columns do not fit together.
    """
    if columns.sequence.width not in _CODES:
        raise ValueError("a history without numbered rows")
    rows = len(columns.sequence.differences) // columns.sequence.width + 1
    for name in FIELDS:
        column: wire.HistoryColumn = getattr(columns, name)
        if column.width not in (0, *_CODES):
            raise ValueError(f"a column with values of {column.width} bytes")
        if len(column.differences) != column.width * (rows - 1):
            raise ValueError(f"{name} does not have {rows} rows")
    return rows


def unpack(columns: wire.HistoryColumns) -> Columns:
    """The fields of the rows, in the order of `FIELDS`.

    Raises:
        ValueError: the columns do not fit together, or have impossible values.
    """
    rows = length(columns)
    return tuple(_unpacked(getattr(columns, name), rows) for name in FIELDS)


def unpack_column(column: wire.HistoryColumn, rows: int) -> list[int]:
    """The values of one column by itself.

    Raises:
        ValueError: its number of rows differs, or it has impossible values.
    """
    if rows == 1 and not column.differences:  # most columns of a large job's samples
        return [column.first]
    long_enough = 0 < rows <= MOST_ROWS and len(column.differences) == column.width * (rows - 1)
    if column.width not in (0, *_CODES) or not long_enough:
        raise ValueError(f"a column that does not have {rows} rows")
    return _unpacked(column, rows)


def _narrowest(values: list[int]) -> tuple[int, array[int]]:
    """The values, each in as few bytes as they need."""
    for width, code in tuple(_CODES.items())[:-1]:
        with suppress(OverflowError):
            return width, array(code, values)
    return 8, array(_CODES[8], values)


def _unpacked(column: wire.HistoryColumn, rows: int) -> list[int]:
    if not column.width:
        return [column.first] * rows
    differences = array(_CODES[column.width], column.differences)
    if sys.byteorder == "big":
        differences.byteswap()
    values = list(accumulate(differences, initial=column.first))
    most = abs(column.first) + (rows << 8 * column.width - 1)
    if most >= _WIDEST and (min(values) < -_WIDEST or max(values) >= 2 * _WIDEST):
        raise ValueError("values are impossible")
    return values

"""Histories by field survive, and what anybody sends costs no more than its bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frtop_probe import wire
from frtop_probe.history_columns import FIELDS, length, pack, pack_rows, unpack
from history_rows import HistoryRow, packed, rows_of

VALUES = st.integers(1 - 2**62, 2**62 - 1)


@given(st.lists(st.tuples(VALUES, st.lists(VALUES, min_size=9, max_size=9), st.booleans()),
                min_size=1, max_size=9))  # fmt: skip
def test_rows_survive(values: list[tuple[int, list[int], bool]]) -> None:
    rows = [
        HistoryRow._make((one, *ints[:8], pseudo, *ints[8:], 0, 0)) for one, ints, pseudo in values
    ]
    columns = packed(rows)
    assert columns is not None
    assert length(columns) == len(rows)
    sent = wire.decode_response(
        wire.encode(wire.HistoryResponse(1, "a", 1, wire.History(columns=columns)))
    )
    assert isinstance(sent, wire.HistoryResponse)
    assert sent.history.columns is not None
    assert list(rows_of(sent.history)) == rows


@pytest.mark.parametrize(("values", "width"), [
    ((7,), 0), ((7, 7, 7), 0), ((1, 2, 3), 1), ((0, 127, -1), 1), ((0, 128), 2), ((0, -129), 2),
    ((5, 2**20), 4), ((0, 2**31), 8), ((2**62, -(2**62) + 1), 8),
])  # fmt: skip
def test_columns_are_as_narrow_as_they_can(values: tuple[int, ...], width: int) -> None:
    assert pack(values).width == width


def test_no_rows_are_no_columns() -> None:
    assert pack_rows(((),) * len(FIELDS)) is None


NUMBERED = wire.HistoryColumn(1, 1, b"\1" * 4)
SAME = wire.HistoryColumn(0)


@pytest.mark.parametrize("wrong", [
    {"sequence": wire.HistoryColumn(1)},
    {"sequence": wire.HistoryColumn(1, 3, b"\1" * 12)},
    {"group": wire.HistoryColumn(1, 1, b"\1" * 3)},
    {"group": wire.HistoryColumn(1, 5, b"\1" * 20)},
    {"group": wire.HistoryColumn(1, -1, b"")},
    {"group": wire.HistoryColumn(1, 0, b"\1" * 4)},
    {"issued_ns": wire.HistoryColumn(2**63, 8, (b"\xff" * 7 + b"\x7f") * 4)},
    {"issued_ns": wire.HistoryColumn(-(2**63), 1, b"\xff" * 4)},
])  # fmt: skip
def test_columns_that_do_not_fit_together_are_refused(wrong: dict[str, wire.HistoryColumn]) -> None:
    columns = {name: NUMBERED if name == "sequence" else SAME for name in FIELDS}
    assert len(unpack(wire.HistoryColumns(**columns))) == len(FIELDS)
    with pytest.raises(ValueError, match=r"row|bytes|impossible"):
        unpack(wire.HistoryColumns(**{**columns, **wrong}))

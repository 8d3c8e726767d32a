"""Histories by field: what they hold, and how new ops are added."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from features.timeline.drawn import GATHER, REDUCE, SITE, history, ops
from frtop_probe import wire
from frtop_probe.ring.layout import Flag
from frtop_tui.features.timeline.op_columns import PENDING_NS, columns_of, columns_of_ops, extended
from frtop_tui.files.histories import ops_of
from history_rows import HistoryRow, packed, rows_of

ROWS = [(1, 1, 100, 50), (2, 1, 120, 10), (1, 2, 200, -30), (1, 3, 300, 0)]


def test_a_history_and_its_ops_make_the_same_columns() -> None:
    sent = history(ROWS)
    found = columns_of(sent)
    assert found.end == [150, 130, 230, PENDING_NS]
    assert found.reach == [150, 150, 230, PENDING_NS]
    again = columns_of_ops(ops_of(sent))
    for name in ("sequence", "group", "number", "issued", "took", "end"):
        assert list(getattr(again, name)) == list(getattr(found, name)), name
    sent_ops = ops_of(sent)
    assert [fields(found.op(n)) for n in range(4)] == [fields(one) for one in sent_ops]


def fields(op: wire.Op) -> tuple[object, ...]:
    return (op.sequence, op.group, op.number, op.signature, op.site, op.issued_ns, op.done_ns)


def test_ops_whose_end_nobody_sees_are_over_at_once_unless_they_are_waited_in() -> None:
    sent = history([(1, 1, 100, 0), (1, 2, 200, 0)], flags=int(Flag.UNTRACKED))
    assert columns_of(sent).end == [100, 200]
    assert columns_of(sent, open_ops=(2,)).end == [100, PENDING_NS]
    untimed = columns_of(history([(1, 1, 100, 5)], flags=wire.UNTIMED))
    assert untimed.end == [100]
    assert not untimed.end_known(0)


def test_indices_outside_of_the_tables_are_unknown() -> None:
    found = columns_of(history([(1, 1, 100, 5)], signature=7))
    assert found.op(0).signature is None
    assert found.letter(0) == "?"


def test_columns_that_do_not_fit_together_are_refused() -> None:
    packed = history(ROWS).columns
    assert packed is not None
    broken = wire.History(columns=replace(packed, group=wire.HistoryColumn(1, 8, b"x")))
    with pytest.raises(ValueError, match="rows"):
        columns_of(broken)


def test_ops_that_overtook_each_other_are_in_the_order_of_their_times() -> None:
    found = ops([(1, 2, 200, 5), (1, 1, 100, 5)])
    assert found.issued == [100, 200]
    assert found.find(1, 1) == 0
    assert found.find(2, 1) is None
    assert ops([(1, 1, 100, 5)], flags=int(Flag.P2P)).find(1, 1) is None  # not by number


def test_new_ops_are_added_and_pending_ones_end() -> None:
    old = ops([(1, 1, 100, 50), (1, 2, 200, 0)])
    new = ops([(1, 2, 200, 30), (1, 3, 300, 10)], first=2)
    joined = extended(old, new, 100)
    assert joined is not None
    assert joined.sequence == [1, 2, 3]
    assert joined.end == [150, 230, 310]
    assert joined.op(0).signature == REDUCE
    assert joined.op(2).site == SITE


def test_tables_of_responses_may_differ() -> None:
    new = wire.History((GATHER,), (), packed([HistoryRow(2, 1, 2, 1, 0, 200, 5, 7)]))
    joined = extended(ops([(1, 1, 100, 50)]), columns_of(new), 100)
    assert joined is not None
    assert [joined.op(n).signature for n in (0, 1)] == [REDUCE, GATHER]
    assert [joined.op(n).site for n in (0, 1)] == [SITE, None]


def test_an_agent_may_send_the_same_signature_and_line_twice() -> None:
    sent = replace(history(ROWS), signatures=(GATHER, GATHER, REDUCE), sites=(SITE, SITE))
    rows = (row._replace(signature=3, site=2) for row in rows_of(sent))
    old = columns_of(replace(sent, columns=packed(rows)))
    joined = extended(old, ops([(1, 4, 400, 10)], first=5), 100)
    assert joined is not None
    assert [joined.op(n).signature for n in range(5)] == [REDUCE] * 5
    assert [joined.op(n).site for n in range(5)] == [SITE] * 5
    again = extended(joined, ops([(1, 5, 500, 10)], first=6), 100)
    assert again is not None
    assert (again.signatures, again.sites) == (joined.signatures, joined.sites)


def test_what_does_not_overlap_is_not_joined() -> None:
    old = ops([(1, 1, 100, 50)])
    assert extended(old, ops([(1, 3, 300, 10)], first=3), 100) is None
    assert extended(old, ops([(1, 2, 300, 10)], first=2), 100) is not None


def test_the_oldest_ops_leave_and_that_is_known() -> None:
    joined = extended(ops([(1, 1, 100, 5), (1, 2, 200, 5)]), ops([(1, 3, 300, 5)], first=3), 2)
    assert joined is not None
    assert joined.issued == [200, 300]
    assert joined.known_from == 200
    assert ops([(1, 1, 100, 5)]).known_from == 0
    assert ops([(1, 9, 100, 5)], first=9).known_from == 100

"""Who came when to one op, on one clock."""

from __future__ import annotations

from dataclasses import replace

from features.timeline.drawn import Row, lane
from frtop_probe import wire
from frtop_tui.features.timeline.lane import Lane, clock_error_ns
from frtop_tui.features.timeline.meetings import Meeting, Meetings, last_late_op
from frtop_tui.features.timeline.op_lines import op_lines
from frtop_tui.job.arrivals import LateIn
from frtop_tui.job.groups import identifier
from frtop_tui.widgets.spans import text_of


def meeting(lanes: list[Lane], position: int = 0) -> Meeting:
    by_rank = {one.rank: one for one in lanes}
    found = Meetings(by_rank.get).of(lanes[0], position)
    assert found is not None
    return found


def test_the_last_to_arrive_is_found_across_clocks() -> None:
    rows: list[Row] = [(1, 7, 1000, 500)]
    lanes = [lane(rank, rows, clock=rank * 10**6) for rank in range(3)]
    late = lane(3, [(1, 7, 1400, 100)], clock=5 * 10**6)
    found = meeting([*lanes, late])
    assert found.complete
    assert (found.last_rank, found.last_ns, found.first_ns) == (3, 1400, 1000)
    assert found.ended_ns == 1500
    assert found.error_ns == 20


def test_who_has_not_come_and_of_whom_nothing_is_known() -> None:
    rows: list[Row] = [(1, 6, 500, 10), (1, 7, 1000, 0)]
    lanes = [lane(0, rows), lane(1, rows[:1]), lane(2, rows[:1], front=9)]
    found = meeting(lanes, 1)
    assert found.absent == (1,)
    assert found.unknown == (2, 3)
    assert not found.complete
    assert found.ended_ns is None


def test_ranks_that_called_different_ops_did_not_wait_for_each_other() -> None:
    lanes = [lane(rank, [(1, 7, 1000 + rank, 0)]) for rank in range(4)]
    gathers = (wire.Signature("all_gather"),)
    lanes[2] = replace(lanes[2], ops=replace(lanes[2].ops, signatures=gathers))
    found = meeting(lanes)
    assert found.kinds == {"all_reduce": (0, 1, 3), "all_gather": (2,)}
    assert not found.complete
    said = "".join(map(text_of, op_lines(lanes[0], 0, 1, found, 0)))
    assert "ranks called different ops (all_reduce: ranks 0-1,3; all_gather: rank 2)" in said
    assert "waited" not in said


def test_an_end_that_is_an_upper_bound_is_no_end() -> None:
    lanes = [lane(rank, [(1, 7, 1000, 500)]) for rank in range(4)]
    lanes[3] = replace(lanes[3], at_most=True)
    assert meeting(lanes).ended_ns == 1500
    assert meeting([replace(one, at_most=True) for one in lanes]).ended_ns is None


def test_groups_that_are_not_counted_alike_do_not_meet() -> None:
    one = lane(0, [(3, 7, 1000, 500)])
    assert Meetings({0: one}.get).of(one, 0) is None


def test_ranks_of_one_host_have_one_clock() -> None:
    rows: list[Row] = [(1, 1, 1, 1)]
    assert clock_error_ns([lane(0, rows, host="a"), lane(1, rows, host="a")]) == 0
    assert clock_error_ns([lane(0, rows), lane(1, rows)]) == 20
    unmeasured = replace(lane(2, rows), error_ns=None)
    assert clock_error_ns([lane(0, rows), unmeasured]) is None


def test_the_newest_op_to_which_a_rank_came_last_is_found() -> None:
    on_time: list[Row] = [(1, 6, 1000, 500), (1, 7, 2000, 500), (1, 8, 3000, 500)]
    late: list[Row] = [(1, 6, 1400, 100), (1, 7, 2400, 100), (1, 8, 2990, 510)]
    lanes = [*(lane(rank, on_time) for rank in range(3)), lane(3, late)]
    meetings = Meetings({one.rank: one for one in lanes}.get)
    group = identifier(lanes[0].groups[1])
    assert last_late_op(lanes[3], meetings, LateIn(group), 64) == 1
    assert last_late_op(lanes[1], meetings, LateIn(group), 64) is None
    assert (
        last_late_op(lanes[3], meetings, LateIn(group), 2) == 2
    )  # not all are in view: the newest
    assert last_late_op(lanes[3], meetings, LateIn(("other", "0-3", 0)), 64) is None
    # Of one line only its ops are looked at.
    op = lanes[3].ops.op(1)
    assert op.signature is not None
    of_line = LateIn(group, op.signature.kind, op.site)
    assert last_late_op(lanes[3], meetings, of_line, 64) == 1
    elsewhere = LateIn(group, op.signature.kind, wire.Site("other.py", 1, "f"))
    assert last_late_op(lanes[3], meetings, elsewhere, 64) is None
    assert last_late_op(lanes[3], meetings, LateIn(group, "barrier"), 64) is None

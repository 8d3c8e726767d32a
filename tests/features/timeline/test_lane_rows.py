"""What a lane draws of a stall and of an op that failed."""

from __future__ import annotations

from dataclasses import replace

from features.timeline.drawn import lane, ops
from frtop_probe import wire
from frtop_tui.features.timeline.lane_rows import drawn_lane
from frtop_tui.features.timeline.meetings import Meetings
from frtop_tui.features.timeline.window import TimeWindow

WINDOW = TimeWindow(0, 10, 20)
NONE = Meetings(lambda _: None)


def test_a_stall_is_drawn_over_the_phase_in_which_it_began() -> None:
    stalled = replace(lane(0, [(1, 1, 10, 10)]), stalled_ns=120)
    forward = replace(stalled.ops, marks=(wire.Mark("forward", 40, 200),), known_until=200)
    letters = "".join(drawn_lane(replace(stalled, ops=forward), WINDOW, NONE).letters)
    assert letters == " A  ffffffff!!!!!!!!"


def test_a_failed_op_stands_out_also_where_its_end_is_an_upper_bound() -> None:
    issued = ops([(1, 1, 10, 20), (1, 2, 50, -3), (1, 3, 100, -20)])
    failed = replace(lane(0, []), ops=issued, at_most=True)
    drawn = drawn_lane(failed, WINDOW, NONE)
    assert [column for column, tone in enumerate(drawn.tones) if tone == "bad"] == [5, 10, 11]

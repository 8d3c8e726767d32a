"""What each cell of a lane shows: the op that takes most of the cell's time.

A cell costs some binary searches, however many ops fall into it: 8,192 ops in 190 cells are
drawn as fast as 20 are.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from frtop_tui.features.timeline.letters import ENDED_WITHIN, UNKNOWN, WAITS
from frtop_tui.features.timeline.op_columns import Intervals, OpColumns

NOTHING: Final = -1
SLIVER: Final = 2
"""A cell is drawn dim if ops take less than one part in this many of it."""


@dataclass(frozen=True, slots=True)
class Cells:
    """For each column: the position of the op that is shown, or `NOTHING`.

    `taken` is how many ns of the column that op takes, `begun` how many ops began in the column.
    """

    positions: list[int]
    taken: list[int]
    begun: list[int]

    def mapped(self, positions: Sequence[int]) -> Cells:
        """The same cells, with each position looked up in `positions`."""
        found = [one if one == NOTHING else positions[one] for one in self.positions]
        return Cells(found, self.taken, self.begun)


def cells_of(
    lane: Intervals | OpColumns, begin_ns: int, step_ns: int, columns: int, until_ns: int
) -> Cells:
    """What is in each cell.

    Times are on the lane's clock. Nothing is drawn from `until_ns` on: it is not known yet.
    """
    issued, end, length, reach = lane.issued, lane.end, lane.length, lane.reach
    positions, taken, begun = [NOTHING] * columns, [0] * columns, [0] * columns
    low = bisect_left(issued, begin_ns)
    left = begin_ns
    for column in range(columns):
        if left >= until_ns:
            break
        right = min(left + step_ns, until_ns)
        high = bisect_left(issued, right, low)
        best, most = NOTHING, -1
        if low and reach[low - 1] > left:
            best = bisect_left(reach, reach[low - 1], 0, low)
            most = min(end[best], right) - left
        if high > low:
            begun[column] = high - low
            last = low
            if high - low > 1:
                last = length.index(max(length[low:high]), low, high)
            part = min(end[last], right) - issued[last]
            # An op that begins here is drawn even if it took no time.
            if part > most or (part == most and best == NOTHING):
                best, most = last, part
        positions[column], taken[column] = best, max(0, most)
        low, left = high, left + step_ns
    return Cells(positions, taken, begun)


def lane_text(
    lane: OpColumns,
    cells: Cells,
    begin_ns: int,
    step_ns: int,
    waits_until: Mapping[int, int],
    *,
    at_most: bool = False,
    first_known: int = 0,
    until_ns: int = 0,
) -> list[str]:
    """A character for each cell.

    `waits_until`: by position, when the last other rank came to that op; with `at_most` all ends
    are upper bounds. Nothing is recorded before `first_known`, or known from `until_ns` on.
    """
    drawn: list[str] = []
    signature, letters, issued = lane.signature, lane.letters, lane.issued
    left = begin_ns
    for position in cells.positions:
        if position == NOTHING:
            drawn.append(UNKNOWN if left + step_ns <= first_known or left >= until_ns else " ")
        elif waits_until and left + step_ns // 2 < waits_until.get(position, 0):
            drawn.append(WAITS)
        elif (
            left > issued[position]
            and (at_most or lane.at_most(position))
            and (not lane.pending(position))
        ):
            drawn.append(ENDED_WITHIN)
        else:
            drawn.append(letters[signature[position]])
        left += step_ns
    return drawn

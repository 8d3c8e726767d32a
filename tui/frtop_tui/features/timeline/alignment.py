"""The queues of some ranks side by side: rows of the same op, by group and number.

Rows are stored by field, one integer per rank; a row that is not shown needs no object.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from frtop_probe import wire
from frtop_probe.consistency.signatures import difference
from frtop_tui.diagnosis.thresholds import MIN_PATIENCE_NS
from frtop_tui.features.timeline.lane import Lane
from frtop_tui.job.groups import Identifier, members_of

NOT_THERE: Final = -1
NO_MEMBER: Final = -2
OLDER: Final = -3
"""The rank's history does not reach back that far, or there is none."""
UNREAD: Final = -4
"""Another rank issued it after this rank's history was read."""
RowKey = tuple[Identifier | None, int]
Missing = Literal["not issued", "not its group", "not recorded", "not read"]
MISSING: Final[dict[int, Missing]] = {
    NOT_THERE: "not issued",
    NO_MEMBER: "not its group",
    OLDER: "not recorded",
    UNREAD: "not read",
}


@dataclass(frozen=True, slots=True)
class Differing:
    """The fields that differ in one row, and whether that is an error of the program.

    If `legal`, it is no error: ranks may issue one op from different lines, or a rank may be on
    its way to it.
    """

    row: int
    fields: tuple[str, ...]
    legal: bool = False


@dataclass(frozen=True, slots=True)
class Alignment:
    """`cells` holds, for each lane, the position of each row's op, or why there is none.

    `keys` holds the group and number of each row; the group is None if only one rank has the op.
    """

    lanes: tuple[Lane, ...]
    keys: Sequence[RowKey]
    cells: tuple[Sequence[int], ...]
    out_of_order: frozenset[int] = frozenset()
    """Rows of ops that some rank issued in another order."""

    def __len__(self) -> int:
        return len(self.keys)

    def ops_at(self, row: int) -> dict[int, wire.Op]:
        found = ((index, column[row]) for index, column in enumerate(self.cells))
        return {i: self.lanes[i].ops.op(position) for i, position in found if position >= 0}

    def differing(self, row: int) -> Differing | None:
        """What differs in a row; None where its ops are alike."""
        group = self.keys[row][0]
        if group is None:
            return None
        fields: list[str] = []
        missing_s = self.missing_s(row)
        if missing_s * 1e9 >= MIN_PATIENCE_NS:
            fields.append("missing")
        if row in self.out_of_order:
            fields.append("order")
        ops = list(self.ops_at(row).values())
        first = ops[0]
        known = self.lanes[_first_of(self.cells, row)].groups.get(first.group)
        for other in ops[1:]:
            if first.signature is not None and other.signature is not None:
                backend = known.backend if known is not None else ""
                found = difference(first.signature, other.signature, backend)
                if found is not None and found not in fields:
                    fields.append(found)
        if fields:
            return Differing(row, tuple(fields))
        if missing_s:
            return Differing(row, ("missing",), legal=True)
        if len({op.site for op in ops if op.site is not None}) > 1:
            return Differing(row, ("line",), legal=True)
        return None

    def missing_s(self, row: int) -> float:
        """For how many seconds a rank has certainly lacked an op of another; 0.0 if none does."""
        cells = [(lane, column[row]) for lane, column in zip(self.lanes, self.cells, strict=True)]
        issued = min(lane.ops.issued[at] + lane.clock_ns for lane, at in cells if at >= 0)
        ages = [lane.known_until_ns - issued for lane, at in cells if at == NOT_THERE]
        return max([1, *ages]) / 1e9 if ages else 0.0

    def first_difference(self) -> Differing | None:
        """The oldest difference in a field that must agree."""
        compared: set[tuple[int, ...]] = set()
        for row in range(len(self)):
            if self._alike(row, compared):
                continue
            found = self.differing(row)
            if found is not None and not found.legal:
                return found
        return None

    def _alike(self, row: int, compared: set[tuple[int, ...]]) -> bool:
        """Whether rows with the same signatures on all ranks were compared before."""
        if row in self.out_of_order or self.keys[row][0] is None:
            return self.keys[row][0] is None
        positions = [column[row] for column in self.cells]
        if NOT_THERE in positions:
            return False
        kinds = tuple(
            -1 if position < 0 else lane.ops.signature[position]
            for lane, position in zip(self.lanes, positions, strict=True)
        )
        if kinds in compared:
            return True
        compared.add(kinds)
        return False


def aligned(lanes: Sequence[Lane], newest: int) -> Alignment:
    """Merges the `newest` ops of each queue.

    Each rank's ops keep their order unless ranks disagree on it.
    """
    lanes = tuple(lanes)
    queues = [_keys(lane, index) for index, lane in enumerate(lanes)]
    heads = [max(0, len(queue) - newest) for queue in queues]
    places = [
        {queue[position]: position for position in range(head, len(queue))}
        for queue, head in zip(queues, heads, strict=True)
    ]
    used = [bytearray(len(queue)) for queue in queues]
    keys: list[RowKey] = []
    cells: tuple[list[int], ...] = tuple([] for _ in lanes)
    out_of_order: set[int] = set()
    while (found := _next(lanes, queues, places, heads)) is not None:
        key, at_ns, in_order = found
        if not in_order:
            out_of_order.add(len(keys))
        keys.append(key)
        for index, lane in enumerate(lanes):
            position = places[index].get(key, NOT_THERE)
            if position >= 0:
                used[index][position] = 1
            else:
                position = _why_missing(lane, key)
                if position == NOT_THERE and lane.known_until_ns < at_ns:
                    position = UNREAD
            cells[index].append(position)
            head, of_lane = heads[index], used[index]
            while head < len(of_lane) and of_lane[head]:
                head += 1
            heads[index] = head
    return Alignment(lanes, keys, cells, frozenset(out_of_order))


def _next(
    lanes: Sequence[Lane],
    queues: Sequence[Sequence[RowKey]],
    places: Sequence[Mapping[RowKey, int]],
    heads: Sequence[int],
) -> tuple[RowKey, int, bool] | None:
    """The next op, when it was issued, and whether it is next on all ranks that have it.

    If several qualify, or the orders conflict, it is the one that was issued first.
    """
    here = sorted([
        (lane.ops.issued[head] + lane.clock_ns, index)
        for index, (lane, head) in enumerate(zip(lanes, heads, strict=True))
        if head < len(queues[index])
    ])  # fmt: skip
    for at_ns, index in here:
        key = queues[index][heads[index]]
        if all(place.get(key, head) == head for place, head in zip(places, heads, strict=True)):
            return key, at_ns, True
    if not here:
        return None
    at_ns, index = here[0]
    return queues[index][heads[index]], at_ns, False


def _keys(lane: Lane, index: int) -> list[RowKey]:
    """Group and number of each op; messages and calls share none with other ranks.

    Each key occurs once, even in a damaged history: the merge relies on that.
    """
    names = {own: group for group, own in lane.group_ids.items()}
    is_numbered = lane.ops.is_numbered
    keys: list[RowKey] = []
    numbers = list(zip(lane.ops.group, lane.ops.number, strict=True))
    last = {own: position for position, own in enumerate(numbers) if is_numbered(position)}
    for position, own in enumerate(numbers):
        group = names.get(own[0])
        if group is not None and last.get(own) == position:
            keys.append((group, own[1]))
        else:
            keys.append((None, position << 8 | index))
    return keys


def _why_missing(lane: Lane, key: RowKey) -> int:
    group, number = key
    if group is None or lane.rank not in members_of(group[1]):
        return NO_MEMBER
    own = lane.group_ids.get(group)
    front = lane.front(own) if own is not None else None
    if own is None or front is None:
        return OLDER
    if number > front:
        return NOT_THERE
    oldest, newest = lane.ops.bounds.get(own, (0, 0))
    between = oldest < number < newest
    return NOT_THERE if between and not lane.ops.lost else OLDER


def _first_of(cells: Sequence[Sequence[int]], row: int) -> int:
    return next(index for index, column in enumerate(cells) if column[row] >= 0)

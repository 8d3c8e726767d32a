"""How far a device is, from the backend's numbers: which ops end, and of which nothing is known."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frtop_probe.recorder.ops import device_front
from frtop_probe.recorder.ops.device_front import NCCL, NCCL2, DeviceFront, HandedOver, Status


class Backend:
    """A group whose backend gives each op the next of `numbers`."""

    def __init__(self, numbers: list[int]) -> None:
        self.numbers = iter(numbers)

    def _get_backend(self, _device: Any) -> Backend:
        return self

    def _get_sequence_number_for_group(self) -> int:
        return next(self.numbers)


def front(kind: str, positions: list[int]) -> DeviceFront:
    """A front with ops 1, 2, ... handed over, which have these numbers for the backend."""
    made, backend = DeviceFront(1, None, kind), Backend(positions)
    for number in range(1, len(positions) + 1):
        made.handed_over(backend, 100 + number, number, 0, 0)
    return made


def take(
    one: DeviceFront, status: Status | None, returned: int | None = None
) -> tuple[list[int], list[int], str]:
    """Numbers of the ops that ended and of those that are untracked, and the reason to give up."""
    ended: list[HandedOver] = []
    lost: list[HandedOver] = []
    count = len(one.waiting) if returned is None else returned
    reason = one.take(status, count, ended.append, lost.append)
    return [op.number for op in ended], [op.number for op in lost], reason


@pytest.mark.parametrize(
    ("kind", "positions", "status", "ended", "lost"),
    [
        pytest.param(NCCL, [1, 2, 3], Status(3, 1), [1], [], id="one of three"),
        pytest.param(NCCL, [1, 2, 3], Status(3, -1), [], [], id="none yet"),
        pytest.param(NCCL, [1, 2, 3], Status(3, 3), [1, 2, 3], [], id="all"),
        pytest.param(
            NCCL, [7, 7, 8], Status(8, 7), [1, 2], [], id="two coalesced under one number"
        ),
        pytest.param(NCCL, [5, 6, 7], Status(5, 5), [1], [2, 3], id="captured: never handed over"),
        pytest.param(NCCL, [5, 6, 7], Status(5, 4), [], [2, 3], id="captured behind a pending one"),
        pytest.param(NCCL2, [], Status(9, 8), [], [], id="nccl2, nothing issued"),
    ],
)
def test_ops_end_as_the_backend_says(
    kind: str, positions: list[int], status: Status, ended: list[int], lost: list[int]
) -> None:
    assert take(front(kind, positions), status) == (ended, lost, "")


def test_an_op_issued_while_the_status_was_read_is_not_lost() -> None:
    one = front(NCCL, [1, 2])
    assert take(one, Status(1, 0), returned=1) == ([], [], "")
    assert take(one, Status(2, 2)) == ([1, 2], [], "")


def test_what_is_complete_stays_so_when_the_count_goes_back() -> None:
    one = front(NCCL, [1, 2, 3])
    assert take(one, Status(3, 2)) == ([1, 2], [], "")
    assert take(one, Status(3, 1)) == ([], [], "")
    assert [op.number for op in one.waiting] == [3]


def test_numbers_of_nccl2_are_taken_from_the_last_op() -> None:
    one = front(NCCL2, [0, 0, 0])
    # It has counted four ops before the first one that we saw.
    assert take(one, Status(7, 5)) == ([1], [], "")
    one.handed_over(Backend([]), 200, 4, 0, 0)
    assert take(one, Status(8, 7)) == ([2, 3], [], "")


def test_a_group_without_a_status_is_given_up_once_an_op_has_returned() -> None:
    assert take(front(NCCL, []), None) == ([], [], "")
    assert take(front(NCCL, [1]), None) == ([], [], device_front.OFF)


def test_a_backend_that_hands_nothing_over_is_given_up_after_some_ops() -> None:
    ops = list(range(1, device_front.MISSED + 1))
    few = front(NCCL, ops[:-1])
    assert take(few, Status(-1, -1)) == ([], ops[:-1], "")
    assert take(front(NCCL, ops), Status(-1, -1)) == ([], ops, device_front.NOT_HANDED_OVER)


def test_giving_up_leaves_no_op_pending() -> None:
    one, lost = front(NCCL, [1, 2, 3]), list[HandedOver]()
    one.give_up(device_front.P2P, lost.append)
    assert [op.number for op in lost] == [1, 2, 3]
    assert (one.blind, list(one.waiting)) == (device_front.P2P, [])


@given(
    st.lists(st.integers(0, 2), max_size=30),
    st.lists(st.tuples(st.integers(-1, 40), st.integers(-1, 40)), max_size=10),
)
def test_no_op_ends_before_the_backend_says_so(
    steps: list[int], statuses: list[tuple[int, int]]
) -> None:
    positions = [sum(steps[: n + 1]) + 1 for n in range(len(steps))]
    one, seen = front(NCCL, positions), set[int]()
    highest = -1
    for enqueued, completed in statuses:
        highest = max(highest, completed)
        ended, lost, _ = take(one, Status(enqueued, completed))
        assert all(positions[number - 1] <= highest for number in ended)
        assert seen.isdisjoint({*ended, *lost})
        seen |= {*ended, *lost}
    assert seen.isdisjoint(op.number for op in one.waiting)
    assert len(seen) + len(one.waiting) == len(positions)

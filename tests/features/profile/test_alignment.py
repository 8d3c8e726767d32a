"""How far clocks are apart, from collectives: known offsets are found, errors cover the truth."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

import pytest

from frtop_tui.features.profile.alignment import ClockOffset, Key, Span, aligned, compared

US = 1000
MS = 1_000_000


def job(
    clocks: Mapping[int, int], last: Mapping[int, int] | None = None, *, group: str = "0",
    ops: int = 40, ends_within: int = 50 * US, step: int = 10 * MS, drift: float = 0.0,
) -> dict[int, dict[Key, Span]]:  # fmt: skip
    """Ranks that share collectives. Clocks are ahead by this many ns, and of rank 0 may drift.

    Who is last arrives at the end of the wait: by default each rank in turn, else as `last` weighs
    them.
    """
    random = Random(7)
    found: dict[int, dict[Key, Span]] = {rank: {} for rank in clocks}
    ranks = sorted(clocks)
    for number in range(ops):
        arrival = 1_000_000_000 + number * step
        late = (
            ranks[number % len(ranks)]
            if last is None
            else random.choices([*last], [*last.values()])[0]
        )
        for rank in ranks:
            begin = arrival if rank == late else arrival - random.randrange(MS, 5 * MS)
            end = arrival + 100 * US + random.randrange(ends_within)
            ahead = clocks[rank] + (int(drift * number * step) if rank else 0)
            found[rank][group, number] = Span(begin + ahead, end + ahead)
    return found


@pytest.mark.parametrize("ahead", [0, 20 * US, MS, -5 * MS, 3600 * 1000 * MS])
@pytest.mark.parametrize(
    ("last", "most"),
    [
        pytest.param(None, 200 * US, id="each is last now and then: tight bounds"),
        pytest.param({0: 1}, 6 * MS, id="one is always last: wide bounds, small spread"),
    ],
)
def test_a_known_offset_is_found_within_its_error(
    ahead: int, last: Mapping[int, int] | None, most: int
) -> None:
    clocks = aligned(job({0: 0, 1: ahead}, last))
    found = clocks[1]
    residual = abs(ahead + found.shift)
    assert residual <= found.error_estimated <= 200 * US
    assert found.error_at_most is not None
    assert residual <= found.error_at_most <= most
    assert (found.shared, found.neighbour) == (40, 0)
    assert clocks[0] == ClockOffset()


def test_an_offset_that_may_be_an_error_moves_nothing() -> None:
    found = aligned(job({0: 0, 1: 5 * US}))[1]
    assert found.offset != 0
    assert found.shift == 0
    assert found.error_estimated >= 5 * US


def test_the_bounds_are_the_error_of_few_collectives() -> None:
    found = aligned(job({0: 0, 1: 9 * MS}, {0: 1}, ops=1))[1]
    assert found.error_estimated == found.error_at_most
    assert abs(9 * MS + found.shift) <= found.error_estimated


def test_clocks_that_drift_apart_have_no_bound() -> None:
    """40 ms over the collectives: each alone would give another offset."""
    found = aligned(job({0: 0, 1: 0}, drift=0.1))[1]
    assert found.error_at_most is None
    assert found.error_estimated > 10 * MS
    assert compared(*job({0: 0, 1: 0}, drift=1.0, ops=4).values()) is None  # too few to say more


def test_ranks_that_share_nothing_are_reached_over_others() -> None:
    """Two pairs, and a group that connects them; rank 4 is in none."""
    truth = {0: 0, 1: 3 * MS, 2: -7 * MS, 3: 20 * MS}
    collectives = job({rank: truth[rank] for rank in (0, 1)}, group="tp 0-1")
    collectives |= job({rank: truth[rank] for rank in (2, 3)}, group="tp 2-3")
    for rank, more in job({rank: truth[rank] for rank in (1, 3)}, group="dp").items():
        collectives[rank] = collectives[rank] | more
    collectives[4] = {("alone", 1): Span(0, 1)}
    clocks = aligned(collectives)
    assert [*sorted(clocks)] == [0, 1, 2, 3]
    assert [clocks[rank].neighbour for rank in (1, 3, 2)] == [0, 1, 3]
    for rank, ahead in truth.items():
        most = clocks[rank].error_at_most
        assert most is not None
        assert abs(ahead + clocks[rank].shift) <= min(most, clocks[rank].error_estimated)
    assert clocks[2].error > clocks[3].error > clocks[1].error


def test_the_largest_set_of_ranks_is_aligned() -> None:
    collectives = job({0: 0, 1: 0}, group="a") | job({2: 0, 3: 0, 4: MS}, group="b")
    assert sorted(aligned(collectives)) == [2, 3, 4]
    assert aligned({3: {}}) == {3: ClockOffset()}

"""The offset of a host's clock: bounds, drift, jumps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frtop_tui.job.clock import DRIFT, HostClock

MS = 1_000_000
S = 1000 * MS
NOW = 5000 * S


class Host:
    """A host whose clock is `skew` behind ours; messages take a given time."""

    def __init__(self, skew: int) -> None:
        self.skew = skew
        self.now = NOW
        self.clock = HostClock()

    def update(self, takes: int = 0) -> None:
        sent = self.now - self.skew
        self.now += takes
        self.clock.hear(sent, self.now)

    def ask(self, there: int, back: int) -> None:
        asked = self.now
        self.now += there
        read = self.now - self.skew
        self.now += back
        self.clock.measure(asked, self.now, read)

    @property
    def wrong(self) -> int:
        return abs(self.clock.offset - self.skew)

    @property
    def error(self) -> int:
        error = self.clock.error(self.now)
        assert error is not None
        return error


def test_without_a_time_request_the_error_is_unknown() -> None:
    host = Host(7 * S)
    host.update(takes=3 * MS)
    assert host.clock.error(host.now) is None
    assert host.wrong == 3 * MS


def test_what_a_late_update_says_is_as_old_as_it_is_once_the_offset_is_known() -> None:
    host = Host(7 * S)
    host.update(takes=5 * S)
    assert host.clock.as_of_ns == host.now
    host.ask(2 * MS, 2 * MS)
    host.update(takes=5 * S)
    assert (host.clock.as_of_ns, host.clock.reported_ns) == (host.now - 5 * S, host.now)


def test_the_middle_of_the_round_trip_replaces_the_guess() -> None:
    host = Host(7 * S)
    host.update(takes=300 * MS)
    host.ask(2 * MS, 2 * MS)
    assert (host.wrong, host.error) == (0, 2 * MS)


def test_the_shortest_round_trip_is_used() -> None:
    host = Host(-9 * S)
    for there, back in [(40, 2), (1, 1), (3, 90), (500, 500)]:
        host.ask(there * MS, back * MS)
    assert host.wrong == 0
    assert host.error < 2 * MS


def test_the_error_grows_until_a_better_measurement() -> None:
    host = Host(S)
    host.ask(MS, MS)
    host.now += 100 * S
    assert host.error == MS + int(100 * S * DRIFT)
    host.ask(4 * MS, 2 * MS)
    assert host.error < 5 * MS


def test_an_update_is_an_upper_bound() -> None:
    host = Host(S)
    host.ask(0, 80 * MS)  # all of it on the way back: the middle is 40 ms too high
    assert host.wrong == 40 * MS
    host.update(takes=10 * MS)
    assert host.wrong <= 10 * MS
    assert host.wrong <= host.error


def test_small_changes_leave_views_as_they_are() -> None:
    host = Host(S)
    host.ask(MS, MS)
    before = host.clock.offset
    host.now += 60 * S
    host.ask(MS, MS + 100_000)
    assert host.clock.offset == before
    assert host.wrong <= host.error


@pytest.mark.parametrize("jump", [60 * S, -60 * S])
def test_a_jump_is_measured_by_the_next_response(jump: int) -> None:
    host = Host(S)
    host.ask(MS, MS)
    host.skew += jump
    host.ask(20 * MS, 20 * MS)  # a longer round trip than the one that holds no more
    assert host.wrong == 0


def test_an_update_from_the_future_shows_a_jump_at_once() -> None:
    host = Host(S)
    host.update(MS)
    host.ask(MS, MS)
    host.skew -= 60 * S  # its clock is ahead now: it slept less, or ours stood still
    host.update(takes=2 * MS)
    assert host.wrong == 2 * MS
    assert host.clock.error(host.now) is None
    assert host.clock.doubted


def test_an_update_that_seems_very_late_raises_doubt_and_changes_nothing() -> None:
    host = Host(S)
    host.ask(MS, MS)
    host.update(takes=MS)
    assert not host.clock.doubted
    host.skew += 60 * S  # its machine stood still; or the link did, who knows
    host.update(takes=MS)
    assert host.clock.doubted
    assert host.clock.offset == S
    host.ask(MS, MS)
    assert not host.clock.doubted
    assert host.wrong == 0


def test_another_boot_has_another_clock() -> None:
    host = Host(S)
    host.ask(MS, MS)
    host.clock.forget()
    assert host.clock.error(host.now) is None
    host.skew = -77 * S
    host.update(takes=MS)
    assert host.wrong == MS


def test_the_wall_clock_follows_the_monotonic_one() -> None:
    host = Host(7 * S)
    host.ask(MS, MS)
    ours, theirs = 1_700_000_000 * S, 1_700_000_003 * S  # it is three seconds ahead
    host.clock.anchor_ns = theirs - (host.now - host.skew)
    assert host.clock.wall_offset(host.now, ours) == -3 * S


delays = st.integers(0, 2 * S)


@given(
    st.integers(-(10**15), 10**15),
    st.lists(st.tuples(st.booleans(), delays, delays, st.integers(0, 60 * S)), max_size=30),
)
def test_the_truth_is_always_within_the_error(
    skew: int, messages: list[tuple[bool, int, int, int]]
) -> None:
    host = Host(skew)
    host.ask(S, S)
    for is_update, there, back, pause in messages:
        host.now += pause
        if is_update:
            host.update(takes=there)
        else:
            host.ask(there, back)
        assert host.wrong <= host.error

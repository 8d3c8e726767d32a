"""What one connection is told: states and updates of the processes that it may see."""

from __future__ import annotations

import pytest

from frtop_probe import wire
from frtop_probe.all_users.subscription import (
    Subscription,
    joint_key,
    split_key,
    with_joint_keys,
)
from frtop_tui.job.state import JobState

ANN, BEN = 1, 2
EMPTY = wire.Update("node3", "i", 0, 5, 6, version="1")


def update(process: int, number: int, *keys: int, notes: tuple[str, ...] = ()) -> wire.Update:
    ranks = tuple(wire.RankUpdate(key) for key in keys)
    return with_joint_keys(process, wire.Update("h", "own", number, 1, 2, ranks, notes=notes))


def keys_of(update: wire.Update | None) -> list[tuple[int, int]]:
    assert update is not None
    return [split_key(rank.key) for rank in update.ranks]


def told(visible: frozenset[int], states: dict[int, wire.Update]) -> Subscription:
    one = Subscription("i")
    one.see(visible)
    one.ask()
    assert keys_of(one.state(states, EMPTY, ())) is not None
    return one


def test_only_visible_processes_are_told_of() -> None:
    one = Subscription("i")
    one.see(frozenset({ANN}))
    one.ask()
    state = one.state({ANN: update(ANN, 3, 1), BEN: update(BEN, 3, 1)}, EMPTY, ("a note",))
    assert keys_of(state) == [(ANN, 1)]
    assert state.notes == ("a note",)
    assert state.full
    one.take(ANN, update(ANN, 4, 1))
    one.take(BEN, update(BEN, 4, 1))
    assert keys_of(one.update(EMPTY, ("a note",))) == [(ANN, 1)]


def test_what_a_state_has_already_is_not_told_again_and_what_came_after_it_is() -> None:
    one = told(frozenset({ANN, BEN}), {ANN: update(ANN, 3), BEN: update(BEN, 7)})
    one.ask()
    one.take(ANN, update(ANN, 4, 1))
    one.take(ANN, update(ANN, 5, 2))  # sent after its state, which has number 4
    state = one.state({ANN: update(ANN, 4, 1), BEN: update(BEN, 7)}, EMPTY, ())
    assert keys_of(state) == [(ANN, 1)]
    assert keys_of(one.update(EMPTY, ())) == [(ANN, 2)]


def test_a_process_that_has_not_answered_is_not_told_of_until_it_has() -> None:
    one = told(frozenset({ANN, BEN}), {ANN: update(ANN, 3)})
    one.take(BEN, update(BEN, 9, 1))
    assert keys_of(one.update(EMPTY, ())) == []


def test_other_rights_leave_a_gap_so_that_the_screen_asks_for_the_state() -> None:
    """The screen's own state decides: what it may not see any more must be gone."""
    one = Subscription("i")
    one.see(frozenset({ANN, BEN}))
    one.ask()
    states = {ANN: update(ANN, 1, 1), BEN: update(BEN, 1, 1)}
    screen = JobState()
    assert screen.apply("h", one.state(states, EMPTY, ()), 10)
    first = one.update(EMPTY, ())
    assert first is not None
    assert screen.apply("h", first, 20)
    one.take(BEN, update(BEN, 2, 1))
    one.see(frozenset({ANN}))
    after = one.update(EMPTY, ())
    assert keys_of(after) == []
    assert after is not None
    assert not screen.apply("h", after, 30)  # a gap
    one.ask()
    assert keys_of(one.state(states, EMPTY, ())) == [(ANN, 1)]


def test_notes_come_when_they_change_and_are_taken_back() -> None:
    one = told(frozenset({ANN}), {ANN: update(ANN, 1)})
    one.take(ANN, update(ANN, 2, notes=("a ring is damaged",)))
    first = one.update(EMPTY, ())
    assert first is not None
    assert first.notes == ("a ring is damaged",)
    second = one.update(EMPTY, ())
    assert second is not None
    assert second.notes == ()
    one.take(ANN, update(ANN, 3, notes=("",)))
    third = one.update(EMPTY, ())
    assert third is not None
    assert third.notes == ("",)


def test_a_connection_that_is_told_nothing_keeps_no_more_than_a_bound() -> None:
    one = told(frozenset({ANN}), {ANN: update(ANN, 1)})
    for number in range(2, 1000):
        one.take(ANN, update(ANN, number, number))
    assert len(keys_of(one.update(EMPTY, ()))) <= 64


@pytest.mark.parametrize("key", [0, -1, 1 << 24, 2**60])
def test_a_key_that_no_process_gives_is_refused(key: int) -> None:
    with pytest.raises(ValueError, match="no key of a rank"):
        joint_key(ANN, key)

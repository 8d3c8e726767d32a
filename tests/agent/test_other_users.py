"""What is said of other users' ranks."""

from __future__ import annotations

import os

import pytest

from frtop_probe import wire
from frtop_probe.agent.unprepared.other_users import advice, notes_of
from frtop_probe.unprepared.discovery.facts import LeftAlone


def test_a_sentence_says_whose_ranks_they_are_and_how_they_are_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    others = LeftAlone(7, "ann", 9, 3), LeftAlone(8, "ben", 9, 0)
    assert notes_of(others) == ["3 ranks of user ann: not looked at; frtop --user ann"]
    assert wire.OF_OTHERS in notes_of(others)[0]


@pytest.mark.parametrize(("as_root", "through_shell", "says"), [
    (False, False, "ann can admit you: `frtop key admit`"),
    (False, True, "root can look: `frtop --user ann`"),
    (True, False, "frtop --user ann"),
    (True, True, "the same command with --user ann shows them"),
])  # fmt: skip
def test_the_next_step_depends_on_who_asks_and_from_where(
    as_root: bool, through_shell: bool, says: str
) -> None:
    assert says in advice("ann", as_root=as_root, through_shell=through_shell)

"""What a person reads before ranks sample."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from features.tensor_checks.sampled_ranks import recorded_now
from frtop_probe.features.tensor_checks.messages import NumberState
from frtop_tui.diagnosis.model import Frame
from frtop_tui.features.tensor_checks.consent import other_watches, warnings
from frtop_tui.features.tensor_checks.orders import (
    NO_NUMBERS,
    JobNumbers,
    RankControl,
)
from screens import scenes

THEIRS = NumberState(True, 1, 90, 40, watch=3, by="mo@node4 PID 17")


def moving() -> Frame:
    """Ranks of which it is not known when they issued an op last."""
    frame = scenes.healthy()
    ranks = {
        rank: replace(one, group_progress={}, pending=(), status=None)
        for rank, one in frame.ranks.items()
    }
    return replace(frame, ranks=ranks)


def recorded(*states: NumberState) -> JobNumbers:
    controls = {n: RankControl(recorded_now(one)) for n, one in enumerate(states)}
    return JobNumbers(controls, {}, {})


def test_who_samples_already_is_named_with_the_time_that_is_left() -> None:
    later = replace(THEIRS, seconds_left=41)
    off = NumberState(watch=3, by="mo@node4 PID 17")  # who has ended one
    found = recorded(THEIRS, later, off)
    said = list(warnings(moving(), found, (0, 1, 2, 3)))
    assert said[0].startswith("ranks 0-1 sample already, for mo@node4 PID 17, at most 41 s more")
    assert len(said) == 1
    assert sorted(other_watches(found, (1, 2, 7))) == [1]


@pytest.mark.parametrize(
    ("frame", "ranks", "words"),
    [
        (moving(), (0, 1), []),
        (moving(), (3,), ["only rank 3 is asked"]),
        (scenes.hung(), (0, 1), ["the job hangs: while no op"]),
        (replace(scenes.hung(), health="waiting"), (0, 1), ["no op was issued for 4m"]),
    ],
)
def test_what_cannot_be_seen_is_said_before(
    frame: Frame, ranks: tuple[int, ...], words: list[str]
) -> None:
    said = list(warnings(frame, NO_NUMBERS, ranks))
    assert len(said) == len(words)
    assert all(line.startswith(begin) for line, begin in zip(said, words, strict=True))

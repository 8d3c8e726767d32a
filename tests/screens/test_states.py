"""Letters, meanings and tones of rank states and health."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from frtop_tui.job.model import Health, RankState
from frtop_tui.text import rank_states
from frtop_tui.widgets import spans, states
from frtop_tui.widgets.spans import TONES


@pytest.mark.parametrize("state", get_args(RankState))
def test_every_state_has_a_letter_a_meaning_and_a_tone(state: RankState) -> None:
    assert rank_states.LETTERS[state]
    assert rank_states.MEANINGS[state]
    assert state in TONES
    assert f".tone--{state} " in (Path(spans.__file__).parent / "tones.tcss").read_text()


def test_no_two_states_share_a_letter() -> None:
    assert len(set(rank_states.LETTERS.values())) == len(get_args(RankState))


@pytest.mark.parametrize("health", get_args(Health))
def test_every_health_has_a_tone(health: Health) -> None:
    assert states.HEALTH_TONE[health] in TONES

"""The verdict panel, the top lines of every screen, and the letters and tones of states."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest
from msgspec.structs import replace

from frtop_tui.diagnosis.model import Frame
from frtop_tui.job.model import Health, HostView, RankState
from frtop_tui.job.naming import folded_hosts
from frtop_tui.job.statistics import JobStatistics, StepSplit
from frtop_tui.text import rank_states
from frtop_tui.text.health_words import no_verdict_words
from frtop_tui.text.plain import text
from frtop_tui.text.verdict import status, verdict_text
from frtop_tui.widgets import spans
from frtop_tui.widgets.headline import HEALTH_TONE, health_line, steps_line
from frtop_tui.widgets.spans import TONES, text_of
from frtop_tui.widgets.verdict import panel_lines, verdict_lines
from screens import scenes
from screens.scenes import S


def test_a_verdict_with_only_a_headline_is_drawn() -> None:
    verdict = replace(scenes.hung().verdicts[0], evidence=(), next="")
    bare = replace(verdict, why=replace(verdict.why, text=""), since_ns=0)
    assert len(verdict_lines(verdict_text(bare, scenes.hung()), 200)) == 1
    assert status(bare, scenes.hung()) == "not entered · confirmed · no progress"
    said = replace(verdict, why=replace(verdict.why, text="data: a worker reads"))
    rows = verdict_lines(verdict_text(said, scenes.hung()), 200)
    assert text_of(rows[1]) == "why   data: a worker reads"  # the layer once


@pytest.mark.parametrize("health", get_args(Health))
def test_without_a_verdict_screens_and_text_say_the_same(health: Health) -> None:
    frame = replace(scenes.healthy(), health=health)
    said = "".join(map(text_of, panel_lines(frame, 2000)))
    assert no_verdict_words(frame) in said
    assert (no_verdict_words(frame) in text(frame)) == (health != "waiting")


def test_without_ranks_no_job_is_called_well() -> None:
    assert no_verdict_words(Frame(1, 1)) == "connecting: no report yet"
    assert no_verdict_words(Frame(1, 1, health="healthy")) == "no ranks yet"


def test_hosts_are_folded() -> None:
    assert folded_hosts(("node0", "node1", "node2")) == "node[0-2]"
    assert folded_hosts(()) == ""
    assert folded_hosts(("n[0-999999999]", "a")) == "n[0-999999999], a"


def test_a_wait_ends_when_its_last_waiting_rank_has_died() -> None:
    frame = scenes.hung()
    later = replace(frame, now_ns=frame.now_ns + 3600 * S)
    gone = {
        rank: replace(view, state="dead", state_since_ns=frame.now_ns)
        for rank, view in frame.ranks.items()
    }
    over = replace(later, ranks=gone)
    assert "HUNG for 4m12s" in spans.text_of(health_line(over))
    assert "HUNG for 1h04m" in spans.text_of(health_line(later))


def test_every_state_has_a_letter_of_its_own_a_meaning_and_a_tone() -> None:
    styles = (Path(spans.__file__).parent / "tones.tcss").read_text()
    states = get_args(RankState)
    for state in states:
        assert rank_states.LETTERS[state]
        assert rank_states.MEANINGS[state]
        assert state in TONES
        assert f".tone--{state} " in styles
    assert len({rank_states.LETTERS[state] for state in states}) == len(states)
    assert {HEALTH_TONE[health] for health in get_args(Health)} <= set(TONES)


def test_steps_are_bars_from_the_fastest_to_twice_as_long() -> None:
    took = [100, 101, 100, 102, 115, 116, 150, 230]
    steps = tuple(StepSplit(n, n, ms * 1_000_000) for n, ms in enumerate(took))
    found = JobStatistics(0, 1, 0, steps={0: steps, 1: ()})
    frame = replace(scenes.healthy(), statistics=found)
    assert spans.text_of(steps_line(frame, 80)) == "steps of rank 0 ▁▁▁▁▂▂▄█ last 230 ms"
    slowest_of_two = "steps of rank 0 ▁▁▂█ last 230 ms"
    assert spans.text_of(steps_line(frame, 32)) == slowest_of_two
    assert steps_line(frame, 30) == ()
    few = replace(frame, statistics=replace(found, steps={0: steps[:3]}))
    assert steps_line(few, 80) == ()


@pytest.mark.parametrize("searching", [True, False])
def test_no_job_is_running_only_once_hosts_are_searched(searching: bool) -> None:
    host = HostView("node0", "reporting", searching=searching)
    words = no_verdict_words(Frame(0, 0, "empty", hosts=(host,)))
    assert words.endswith("no job so far" if searching else "no job is running")

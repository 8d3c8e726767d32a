"""The verdict panel."""

from __future__ import annotations

from msgspec.structs import replace

from frtop_tui.diagnosis.model import Frame
from frtop_tui.widgets.spans import text_of
from frtop_tui.widgets.verdict import no_verdict, status, verdict_lines

from . import scenes


def test_a_verdict_with_only_a_headline_is_drawn() -> None:
    verdict = replace(scenes.hung().verdicts[0], evidence=(), next="")
    bare = replace(verdict, why=replace(verdict.why, text=""), since_ns=0)
    assert len(verdict_lines(bare, 200)) == 1
    assert status(bare, scenes.hung()) == "not entered · confirmed · no progress"


def test_the_layer_is_shown_once() -> None:
    verdict = scenes.hung().verdicts[0]
    said = replace(verdict, why=replace(verdict.why, text="data: a worker reads"))
    assert text_of(verdict_lines(said, 200)[1]) == "why   data: a worker reads"


def test_without_a_verdict_states_are_counted() -> None:
    healthy = scenes.healthy()
    assert no_verdict(healthy) == "no verdict: all 64 ranks moving"
    partly = replace(healthy, coverage=replace(healthy.coverage, unheard=(64, 65)))
    assert no_verdict(partly) == "no verdict: 64 moving, 2 never heard"
    assert no_verdict(Frame(1, 1)) == "connecting: nothing heard yet"

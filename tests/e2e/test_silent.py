"""frtop reports ops that differ in a running job without a hang, and no legal differences."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.conftest import Launch
from frtop_tui.connect.live import LiveSource
from frtop_tui.diagnosis.model import Frame
from frtop_tui.text.document import document
from frtop_tui.text.exit_status import exit_status
from waiting import wait_for

ODD = 3333


@pytest.fixture
def source(home: Path) -> Iterator[LiveSource]:
    source = LiveSource()
    yield source
    source.close()


@pytest.mark.long  # the zoo has it in every run (silent/reduce_op)
def test_one_different_reduce_op_in_five_thousand_is_named(
    torchrun: Launch, source: LiveSource, tmp_path: Path
) -> None:
    process = torchrun("one_max.py", str(tmp_path), str(ODD), ranks=4)
    wait_for(lambda: source.frame().verdicts, "a verdict", 120)
    wait_for(lambda: source.frame().verdicts[0].culprits, "a culprit", 20)
    frame = source.frame()
    (verdict,) = frame.verdicts
    assert (verdict.kind, verdict.confidence) == ("mismatch", "confirmed"), document(frame)
    assert (verdict.culprits, verdict.parties) == ((2,), ((2,), (0, 1, 3)))
    assert verdict.op is not None
    assert (verdict.op.kind, verdict.op.number) == ("all_reduce", ODD)
    assert "the reduce op differs; data may be wrong" in verdict.why.text
    assert (frame.health, exit_status(frame)) == ("diverged", 3)
    wait_for((tmp_path / "done").exists, "it trains on", 60)
    assert [v.kind for v in source.frame().verdicts] == ["mismatch"]
    (tmp_path / "stop").touch()
    assert process.wait(60) == 0


@pytest.mark.long
def test_legal_differences_are_no_hint(
    torchrun: Launch, source: LiveSource, tmp_path: Path
) -> None:
    process = torchrun("uneven_but_legal.py", str(tmp_path), ranks=4)
    frames: list[Frame] = []

    def steps() -> int:
        file = tmp_path / "steps"
        return int(file.read_text() or 0) if file.exists() else 0

    def is_trained() -> bool:
        frames.append(source.frame())
        return steps() >= 500

    wait_for(is_trained, lambda: f"500 steps; it made {steps()}", 90, pause_s=0.1)
    reported = {
        front.number for view in frames[-1].ranks.values() for front in view.group_progress.values()
    }
    assert max(reported) > 1500
    for frame in frames:
        assert not frame.divergence_hints, frame.divergence_hints
        assert not frame.verdicts, document(frame)
    (tmp_path / "stop").touch()
    assert process.wait(60) == 0

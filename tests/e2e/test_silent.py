"""Ops that differ without a hang are found in a running job; legal differences are not."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.conftest import Launch, eventually
from frtop_tui.diagnosis.model import Frame
from frtop_tui.report.document import document
from frtop_tui.report.exit_status import exit_status
from frtop_tui.sources.live import LiveSource

ODD = 3333


@pytest.fixture
def source(home: Path) -> Iterator[LiveSource]:
    source = LiveSource()
    yield source
    source.close()


def test_one_different_reduce_op_in_five_thousand_is_named(
    torchrun: Launch, source: LiveSource, tmp_path: Path
) -> None:
    process = torchrun("one_max.py", str(tmp_path), str(ODD), ranks=4)
    eventually(lambda: source.frame().verdicts, 120, "a verdict")
    eventually(lambda: source.frame().verdicts[0].culprits, 20, "all members have told")
    frame = source.frame()
    (verdict,) = frame.verdicts
    assert (verdict.kind, verdict.confidence) == ("mismatch", "confirmed"), document(frame)
    assert (verdict.culprits, verdict.parties) == ((2,), ((2,), (0, 1, 3)))
    assert verdict.op is not None
    assert (verdict.op.kind, verdict.op.number) == ("all_reduce", ODD)
    assert "the reduce op differs; data may be wrong" in verdict.why.text
    assert (frame.health, exit_status(frame)) == ("diverged", 3)
    eventually((tmp_path / "done").exists, 60, "it trains on")
    assert [v.kind for v in source.frame().verdicts] == ["mismatch"]
    (tmp_path / "stop").touch()
    assert process.wait(60) == 0


def test_legal_differences_are_no_hint(
    torchrun: Launch, source: LiveSource, tmp_path: Path
) -> None:
    process = torchrun("uneven_but_legal.py", str(tmp_path), ranks=4)
    frames: list[Frame] = []
    end = time.monotonic() + 90

    def steps() -> int:
        file = tmp_path / "steps"
        return int(file.read_text() or 0) if file.exists() else 0

    while steps() < 500:
        assert time.monotonic() < end, steps()
        frames.append(source.frame())
        time.sleep(0.1)
    heard = {
        front.number for view in frames[-1].ranks.values() for front in view.group_progress.values()
    }
    assert max(heard) > 1500
    for frame in frames:
        assert not frame.divergence_hints, frame.divergence_hints
        assert not frame.verdicts, document(frame)
    (tmp_path / "stop").touch()
    assert process.wait(60) == 0

"""A recorded job as events: what reads them, and the reference of their fields."""

from __future__ import annotations

from pathlib import Path

import pytest

from files.test_capture import rows
from files.test_documented_examples import run_example
from frtop_tui.cli import main
from frtop_tui.features.stream.events import StreamHead
from frtop_tui.files import capture
from frtop_tui.registry import contributions
from screens.scenes import hung


def test_events_of_a_capture_are_read_with_msgpack_alone(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    frame = hung()
    capture.write(tmp_path / "x.cap", frame, {3: rows(2)}, ())
    words = ["stream", "--format", "msgpack", "--only", "ops,states,verdicts", "--rank", "3,37"]
    assert main([*words, str(tmp_path / "x.cap")]) == 0
    first, *lines = run_example(
        "events", stdin=capfdbinary.readouterr().out, page="features/stream.md"
    )
    assert first == "schema 1 job llama-70b"
    assert lines[:2] == ["rank 3 issued all_reduce 1", "rank 3 issued all_reduce 2"]
    assert lines[-3:] == [
        "rank 3 is blocked",
        "rank 37 is late",
        f"begun {frame.verdicts[0].headline}",
    ]


def test_the_reference_of_fields_has_the_events() -> None:
    assert any(StreamHead in kinds for _, kinds in contributions("events", "PAGE"))

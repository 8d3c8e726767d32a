"""Judges the capture of a slow program, or of a control, as whoever opens it later does."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from frtop_tui.connect.source import Source
from frtop_tui.diagnosis.cases.slow.looks import WAITS
from frtop_tui.diagnosis.causes import LOCATIONS
from frtop_tui.diagnosis.histories import with_histories
from frtop_tui.diagnosis.model import Frame
from frtop_tui.files.loader import open_paths
from waiting import wait_for
from zoo.ground_truth import Case

FAMILY: Final = "slow/"
"""Programs whose captures are judged: other families are judged by their dumps."""
WRITTEN_S: Final = 40.0


def mistakes_of_capture(source: Source, case: Case, path: Path) -> str:
    """Captures a program that runs; returns what is wrong about the verdicts on the file.

    They are judged twice: as they were found live, and by the histories in the file alone.
    """
    source.capture(path)
    wait_for(lambda: _is_written(source), "the capture is written", WRITTEN_S)
    kept = open_paths([path])
    for what, frame, expected in (
        ("kept", kept, case),
        ("by its histories", _judged_anew(kept), _by_histories(case)),
    ):
        wrong = _wrong(expected, frame)
        if wrong:
            return f"its capture, {what}: {wrong}"
    return ""


def _is_written(source: Source) -> bool:
    writing = next((one for one in source.frame().writings if one.kind == "capture"), None)
    assert writing is None or writing.state != "failed", writing
    return writing is not None and writing.state == "written"


def _judged_anew(frame: Frame) -> Frame:
    """The file of a job that looked healthy when it was captured."""
    if frame.health != "slow":
        return frame
    return with_histories(replace(frame, verdicts=(), health="healthy"))


def _by_histories(case: Case) -> Case:
    """What histories show: a file has one look or two, and many found this cause."""
    if not {cause for truth in case.truths for cause in truth.causes} & {
        LOCATIONS[kind].cause for kind in WAITS
    }:
        return case
    truths = tuple(replace(one, causes=("unknown",), says=()) for one in case.truths)
    return dataclasses.replace(case, truths=truths)


def _wrong(case: Case, frame: Frame) -> str:
    if case.healthy:
        return case.false_claim(frame)
    return "" if case.confirmed(frame.verdicts) else case.mistakes(frame.verdicts)

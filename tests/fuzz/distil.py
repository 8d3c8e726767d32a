"""Keeps, of what a run has found, small inputs that reach a line which no other one reaches."""

from __future__ import annotations

import hashlib
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import Any, Final

from fuzz.bounded import Shared, Trial
from fuzz.target import Target

MOST: Final = 8192
"""Bytes of an input that is kept: the corpus is in the repository."""
Line = tuple[str, int]


def distil(target: Target, found: Path, memory: str | None) -> int:
    """Adds to a target's corpus; returns how many inputs."""
    kept = 0
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=memory)))
        trial = Trial(target, target.prepare(folder, stack), None, Shared(target.most))
        reached = set[Line]()
        for data in target.all_seeds(folder):
            reached |= _lines(trial, data)
        paths = [one for one in found.glob("*") if one.stat().st_size <= MOST]
        for path in sorted(paths, key=lambda one: (one.stat().st_size, one.name)):
            data = path.read_bytes()
            if new := _lines(trial, data) - reached:
                reached |= new
                target.folder.mkdir(parents=True, exist_ok=True)
                (target.folder / hashlib.sha256(data).hexdigest()[:12]).write_bytes(data)
                kept += 1
    return kept


def _lines(trial: Trial, data: bytes) -> set[Line]:
    """The lines of frtop that an input reaches."""
    reached = set[Line]()

    def note(frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            reached.add((frame.f_code.co_filename, frame.f_lineno))
        return note

    sys.settrace(lambda frame, *_: note if "frtop_" in frame.f_code.co_filename else None)
    try:
        trial.try_input(data)
    finally:
        sys.settrace(None)
    return reached

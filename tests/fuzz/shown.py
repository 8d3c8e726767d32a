"""Jobs of whom hostile data is a part, and all that is made of a frame, but the screens."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Final

from diagnosis.scenes import Scene
from frtop_tui.diagnosis.model import Frame
from frtop_tui.files import capture
from frtop_tui.text.explain import explain_lines
from frtop_tui.text.incident import incident_of
from frtop_tui.text.json_document import document
from frtop_tui.text.plain import text


def hang() -> Scene:
    scene = Scene(4, hosts=2)
    scene.group("1", [0, 1], "tp")
    scene.does([0, 1], "all_reduce", group="1")
    scene.waits([0, 1, 3], "all_reduce", for_s=30)
    scene.sleeps(2)
    return scene


def mismatch() -> Scene:
    scene = Scene(4, hosts=2)
    scene.waits([0, 1, 2], "all_reduce", for_s=30)
    scene.waits([3], "barrier", for_s=20)
    scene.in_pseudo([1], "new_group", 20, "0-3")
    return scene


def ends() -> Scene:
    scene = Scene(4, hosts=2)
    scene.waits([0, 1], "broadcast", for_s=30, root=3)
    scene.raises(2, "ValueError", "no")
    scene.fetches(3, pid=77)
    scene.worker(3, 77, "D", "read", "/data/x")
    return scene


SCENES: Final[tuple[Callable[[], Scene], ...]] = (hang, mismatch, ends)


def show(frame: Frame, path: Path, *, quotes: bool = False) -> None:
    """No NaN is shown, and a capture of it opens again."""
    shown = json.dumps(document(frame), allow_nan=False)
    explained = explain_lines(frame.trace) if frame.trace is not None else ()
    lines = [*text(frame), *explained, shown]
    assert quotes or not [line for line in lines if "nan" in line.split() or "NaN" in line]
    incident_of(frame, "1")
    capture.write(path, frame, {}, ())
    capture.read(path)

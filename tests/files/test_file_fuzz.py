"""A file with any figure changed is refused in a sentence, or read; no NaN is shown."""

from __future__ import annotations

import pickle  # noqa: TID251 - to write what a dump of torch never holds
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from diagnosis.test_update_fuzz import SCENES, show
from files.boxes import BoxRecorder, write_boxes
from files.flightrecorder.writer import make_recorders
from frtop_probe import archive
from frtop_probe.ring.box_lock import BOX_KIND
from frtop_tui.errors import FrtopError
from frtop_tui.files import capture
from frtop_tui.files.loader import open_paths
from mutations import inputs

LONG: Final = (pytest.mark.long, pytest.mark.timeout(3600))
Write = Callable[[Path, Any], Path]


def a_capture(folder: Path) -> tuple[Any, Write]:
    scene = SCENES[0]()
    path = folder / "one.frtop"
    capture.write(path, scene.settle(), {}, ())
    content = msgspec.msgpack.decode(archive.read(path, capture.KIND))

    def write(into: Path, changed: Any) -> Path:
        archive.write(into / "f.frtop", capture.KIND, msgspec.msgpack.encode(changed))
        return into / "f.frtop"

    return content, write


def a_box(folder: Path) -> tuple[Any, Write]:
    (path,) = write_boxes(folder, BoxRecorder(SCENES[0]()).boxes()[:1])
    content = msgspec.msgpack.decode(archive.read(path, BOX_KIND))

    def write(into: Path, changed: Any) -> Path:
        archive.write(into / path.name, BOX_KIND, msgspec.msgpack.encode(changed))
        return into / path.name

    return content, write


def a_dump(_: Path) -> tuple[Any, Write]:
    one = make_recorders(2)[1]
    one.ran("0", count=3)
    one.waits("0")

    def write(into: Path, changed: Any) -> Path:
        (into / "dump_1").write_bytes(pickle.dumps(changed, 2))
        return into / "dump_1"

    return one.values(), write


@pytest.mark.parametrize("make", [a_capture, a_box, a_dump])
@pytest.mark.parametrize("count", [150, pytest.param(10_000, marks=LONG)])
def test_no_figure_of_a_file_raises_or_is_shown_as_nan(
    tmp_path: Path, make: Callable[[Path], tuple[Any, Write]], count: int
) -> None:
    content, write = make(tmp_path)
    into = tmp_path / "changed"
    into.mkdir()
    for _, mutator in inputs(count):
        mutator.fits_msgpack = make is not a_dump
        changed = mutator.value(content)
        path = write(into, mutator.value(changed) if mutator.chance(0.5) else changed)
        try:
            frame = open_paths([path])
        except FrtopError:
            continue
        show(frame, tmp_path / "again.frtop")

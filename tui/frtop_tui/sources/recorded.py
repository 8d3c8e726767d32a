"""A job as it was: one frame that stays. Wishes for a live job are answered in it."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Literal

from msgspec.structs import replace

from frtop_probe import archive
from frtop_tui.diagnosis.model import Frame
from frtop_tui.errors import Unreadable
from frtop_tui.export import capture
from frtop_tui.export.output_path import write_unused
from frtop_tui.job.model import Writing
from frtop_tui.job.naming import JobKey


class RecordedSource:
    """Shows a frame of what was opened: a capture, black boxes, dumps, stacks."""

    def __init__(self, frame: Frame) -> None:
        self._frame = frame

    def frame(self) -> Frame:
        return self._frame

    def watch(self, ranks: Iterable[int]) -> None:
        """Nothing to keep fresh."""

    def dump(self, ranks: Iterable[int]) -> None:
        """The stacks there are, are in the frame."""

    def inspect(self, rank: int) -> None:
        """What the rank answered when it was recorded, if it was asked, is in the frame."""

    def save(self, rank: int, sequence: int, path: Path) -> None:  # noqa: ARG002
        self._tell("tensors", path, problem=self._frame.read_only)

    def capture(self, path: Path, *, automatic: bool = False) -> None:
        """Writes it once more: the same file, or one capture of all files that told of it."""
        if automatic:
            return
        recorded = self._frame.recorded
        try:
            if recorded is not None and recorded.kind == "capture" and not recorded.filled:
                content = capture.content_of(Path(recorded.path), capture.KIND)
                write = partial(archive.write, kind=capture.KIND, content=content, overwrite=False)
            else:
                write = partial(
                    capture.write, frame=self._frame, histories={}, missing=(), over=False
                )
            path, size = write_unused(path, write)
        except OverflowError:  # a box may tell of times beyond all numbers
            self._tell("capture", path, problem="what was recorded makes no sense: copy the files")
            return
        except (OSError, Unreadable) as error:
            said = error.text if isinstance(error, Unreadable) else error.strerror
            self._tell("capture", path, problem=f"{path} cannot be written: {said}")
            return
        self._tell("capture", path, size=size)

    def choose(self, job: JobKey | None) -> None:
        """One job was read."""

    def close(self) -> None:
        """No thread, no socket."""

    def _tell(
        self, kind: Literal["capture", "tensors"], path: Path, *, problem: str = "", size: int = 0
    ) -> None:
        told = Writing(
            kind,
            "failed" if problem else "written",
            str(path),
            size=size,
            problem=problem,
            at_ns=self._frame.now_ns,
        )
        others = tuple(w for w in self._frame.writings if w.kind != kind)
        self._frame = replace(self._frame, writings=(*others, told))

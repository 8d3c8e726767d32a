"""A recorded job: one frame."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal

from msgspec.structs import replace

from frtop_probe import archive
from frtop_tui.connect.followers import follower_kinds
from frtop_tui.connect.source import Source
from frtop_tui.diagnosis.histories import with_trace
from frtop_tui.diagnosis.model import Frame
from frtop_tui.errors import FrtopError, Unreadable
from frtop_tui.files import capture
from frtop_tui.files.formats.writing import write_export
from frtop_tui.files.output_path import write_unused
from frtop_tui.job.model import Problem, Writing
from frtop_tui.statistics.of_frame import again
from frtop_tui.statistics.wanted import StatisticsWanted, joint_wanted


class RecordedSource(Source):
    """Shows the frame of the opened files: a capture, black boxes, dumps, stacks.

    Nothing changes in it: commands for a live job do nothing.
    """

    def __init__(self, frame: Frame) -> None:
        self._frame = frame
        self._statistics = frame.statistics
        self._wanted: dict[str, StatisticsWanted] = {}
        self._news = {kind.name: kind.of_file(frame) for kind in follower_kinds()}

    def frame(self) -> Frame:
        return self._frame

    def news(self) -> Mapping[str, Any]:
        return self._news

    def capture(
        self,
        path: Path,
        *,
        automatic: bool = False,
        settle_s: float = 0.0,  # noqa: ARG002
        redact: bool = False,
    ) -> None:
        """Copies an opened capture, or writes one capture of all files of the job."""
        if automatic:
            return
        recorded = self._frame.recorded
        try:
            if (
                recorded is not None
                and recorded.kind == "capture"
                and not (recorded.filled or redact)
            ):
                content = capture.content_of(Path(recorded.path), capture.KIND)
                write = partial(archive.write, kind=capture.KIND, content=content, overwrite=False)
            else:
                write = partial(
                    capture.write,
                    frame=self._frame,
                    histories={},
                    missing=(),
                    over=False,
                    redact=redact,
                )
            path, size = write_unused(path, write)
        except OverflowError:  # a damaged black box may have times of any size
            problem = Problem("the recorded times make no sense", "copy the files instead")
            self._set_writing("capture", path, problem=problem)
            return
        except (OSError, Unreadable) as error:
            reason = error.text if isinstance(error, Unreadable) else error.strerror
            problem = Problem(f"{path} cannot be written: {reason}", "name another file")
            self._set_writing("capture", path, problem=problem)
            return
        self._set_writing("capture", path, size=size)

    def export(self, path: Path, name: str, *, over: bool = False, redact: bool = False) -> None:
        write = partial(write_export, frame=self._frame, name=name, over=over, redact=redact)
        try:
            path, size = (path, write(path)) if over else write_unused(path, write)
        except FrtopError as error:
            self._set_writing("export", path, problem=Problem(error.text, error.next_step))
        except (OSError, OverflowError) as error:
            problem = Problem(f"{path} was not written: {error}", "name another file")
            self._set_writing("export", path, problem=problem)
        else:
            self._set_writing("export", path, size=size)

    def want_statistics(self, wanted: StatisticsWanted | None, *, whom: str = "") -> None:
        """Counts the ops of the frame again; without `calls`, it already has them."""
        if wanted is None:
            self._wanted.pop(whom, None)
        else:
            self._wanted[whom] = wanted
        joint = joint_wanted(self._wanted.values())
        if joint is not None and joint.calls:
            self._frame = replace(
                self._frame, statistics=again(self._frame, joint, self._statistics)
            )

    def explain(self, *, on: bool) -> None:
        """Judges the frame again, with its wait-for graph."""
        if on:
            self._frame = with_trace(self._frame)

    def _set_writing(
        self,
        kind: Literal["capture", "tensors", "export"],
        path: Path,
        *,
        problem: Problem | None = None,
        size: int = 0,
    ) -> None:
        writing = Writing(
            kind,
            "failed" if problem else "written",
            str(path),
            size=size,
            problem=problem,
            at_ns=self._frame.now_ns,
        )
        others = tuple(w for w in self._frame.writings if w.kind != kind)
        self._frame = replace(self._frame, writings=(*others, writing))

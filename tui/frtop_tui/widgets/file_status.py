"""The state of files that frtop writes: a word for the headline, a sentence for the panes."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from frtop_tui.diagnosis.model import Frame
from frtop_tui.job.model import Writing
from frtop_tui.job.units import byte_size
from frtop_tui.widgets.spans import Line, wrap

IN_PROGRESS = ("collecting", "writing")
_DOING = {"capture": "capturing", "tensors": "saving", "export": "exporting"}
_DONE = {"capture": "captured", "tensors": "saved", "export": "exported"}
_WHAT = {"capture": "the capture", "tensors": "saving the tensors", "export": "the export"}
FILE_TONES = {"collecting": "strong", "writing": "strong", "written": "good", "failed": "bad"}


def short_path(path: str) -> str:
    """The path relative to the current folder, if it is below that."""
    try:
        return path.removeprefix(f"{Path.cwd()}/")
    except OSError:  # the current folder was deleted
        return path


def file_in_progress(frame: Frame, kind: str) -> Writing | None:
    """The file of this kind that is still being written."""
    found = (w for w in frame.writings if w.kind == kind and w.state in IN_PROGRESS)
    return next(found, None)


def files_summary(frame: Frame) -> str:
    """`capturing 23/64 ranks`, then `captured`: for the headline."""
    words = []
    for writing in frame.writings:
        if writing.state in IN_PROGRESS:
            words.append(_DOING[writing.kind])
            if writing.state == "collecting" and writing.total:
                words[-1] += f" {_progress(writing)}"
        elif writing.kind == "capture" and writing.state == "written":
            words.append("captured")
    return ", ".join(words)


def _progress(writing: Writing) -> str:
    if writing.kind != "tensors":
        return f"{writing.done:,}/{writing.total:,} ranks"
    return f"{byte_size(writing.done)} of {byte_size(writing.total)}"


def describe_file(writing: Writing) -> str:
    """How far the file is, where it was written, or why that failed."""
    path = short_path(writing.path)
    if writing.state in IN_PROGRESS:
        counted = writing.total and writing.state == "collecting"
        progress = f" {_progress(writing)}" if counted else ""
        return f"{_DOING[writing.kind]}{progress} to {path}"
    if writing.state == "failed":
        what = _WHAT[writing.kind]
        return f"{what} failed: {writing.problem or 'reason unknown'}"
    automatically = " automatically" if writing.automatic else ""
    verb = _DONE[writing.kind]
    done = f"{verb}{automatically}: {path}, {byte_size(writing.size)}"
    return f"{done}; {writing.problem}" if writing.problem else done


def file_lines(
    frame: Frame, width: int, kinds: Collection[str] = ("capture", "tensors", "export")
) -> list[Line]:
    """One sentence for every file of these kinds."""
    rows: list[Line] = []
    for writing in frame.writings:
        if writing.kind in kinds:
            rows += wrap(
                describe_file(writing), width, FILE_TONES[writing.state], ("file  ", "dim")
            )
    return rows

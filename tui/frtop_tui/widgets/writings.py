"""Files that are being written, or are: a word for the top lines, sentences for the panes."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from frtop_tui.diagnosis.model import Frame
from frtop_tui.job.model import Writing
from frtop_tui.widgets.spans import Line, wrap
from frtop_tui.widgets.wording import amount

UNDER_WAY = ("collecting", "writing")
TONES = {"collecting": "strong", "writing": "strong", "written": "good", "failed": "bad"}


def file_size(size: int) -> str:
    """`3.1 MB`, `812 B`."""
    return amount(size).removesuffix("B") + "B"


def place(path: str) -> str:
    """The path as short as it can be typed in this folder."""
    try:
        return path.removeprefix(f"{Path.cwd()}/")
    except OSError:  # the folder was taken away under us
        return path


def under_way(frame: Frame, kind: str) -> Writing | None:
    """The file of this kind that is not finished yet."""
    found = (w for w in frame.writings if w.kind == kind and w.state in UNDER_WAY)
    return next(found, None)


def progress(frame: Frame) -> str:
    """`capturing 23/64 ranks`, then `captured`: for where there is room for a word only."""
    words = []
    for writing in frame.writings:
        if writing.state in UNDER_WAY:
            words.append("capturing" if writing.kind == "capture" else "saving")
            if writing.state == "collecting" and writing.total:
                words[-1] += f" {_share(writing)}"
        elif writing.kind == "capture" and writing.state == "written":
            words.append("captured")
    return ", ".join(words)


def _share(writing: Writing) -> str:
    if writing.kind == "capture":
        return f"{writing.done:,}/{writing.total:,} ranks"
    return f"{amount(writing.done)} of {amount(writing.total)}"


def sentence(writing: Writing) -> str:
    """How far it has come, or where it is now, or why it is not."""
    capture, where = writing.kind == "capture", place(writing.path)
    if writing.state in UNDER_WAY:
        share = f" {_share(writing)}" if writing.total and writing.state == "collecting" else ""
        return f"{'capturing' if capture else 'saving'}{share} to {where}"
    if writing.state == "failed":
        what = "the capture" if capture else "saving the tensors"
        return f"{what} failed: {writing.problem or 'why is not known'}"
    itself = " by itself" if writing.automatic else ""
    done = f"{'captured' if capture else 'saved'}{itself}: {where}, {file_size(writing.size)}"
    return f"{done}; {writing.problem}" if writing.problem else done


def writing_lines(
    frame: Frame, width: int, kinds: Collection[str] = ("capture", "tensors")
) -> list[Line]:
    """One sentence for every file of these kinds."""
    rows: list[Line] = []
    for writing in frame.writings:
        if writing.kind in kinds:
            rows += wrap(sentence(writing), width, TONES[writing.state], ("file  ", "dim"))
    return rows

"""What a person names, opened: whatever tells of a job, of any kind, in any mix, as one frame.

Dumps and stacks in one folder are of one job and moment: together they make its frame. A
capture or black boxes beside them were judged with more at hand: then these speak, and
dumps and stacks only fill in what they lack, if they fit (`filling`). Of several captures,
or of captures and black boxes, the newest speaks. What is left over is named.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from frtop_probe import wire
from frtop_tui.diagnosis.model import Frame
from frtop_tui.errors import Unreadable
from frtop_tui.export import blackbox, capture, pyspy, stacks
from frtop_tui.export.files import Files, files_in, is_folder
from frtop_tui.export.filling import filled
from frtop_tui.export.flightrecorder import gathering
from frtop_tui.export.flightrecorder.naming import RankPattern
from frtop_tui.job.naming import job_call, job_names, job_place, job_title, listed, typed

MOST_NOTES: Final = 20
"""On files that could not be read; the verdict comes below them."""
_NEXT: Final = (
    "frtop open takes what `frtop capture` wrote, a folder of `frtop run --record`, or one of"
    " Flight Recorder dumps and py-spy stacks; where these have names of their own:"
    " --ranks-from 'host*_gpu{rank}'"
)


@dataclass(frozen=True, slots=True)
class _Capture:
    path: Path
    head: capture.Head


def open_paths(
    paths: Sequence[Path], job: str | None = None, pattern: RankPattern | None = None
) -> Frame:
    """The job that these files tell of: the one recorded last, or the one called `job`.

    What cannot be read is named in the frame as long as something can. `pattern` says how
    dumps and stacks are named for their ranks.

    Raises:
        Unreadable: nothing there can be read, or nothing tells of that job.
    """
    files = files_in(paths, pattern)
    captures = _newest_first(files)
    boxes: list[blackbox.Found] = []
    for path in files.boxes:
        try:
            boxes.append(blackbox.load(path))
        except Unreadable as error:
            files.troubles.append(error.text)
    dumped = files.dumps or files.stacks
    if not captures and not boxes:
        if not dumped:
            raise _nothing(paths, files.troubles)
        return _told(_called(_dumped(files, pattern), job), files.troubles)
    frame, rest = _chosen(captures, boxes, job)
    if dumped:
        frame = _filled(frame, files, pattern)
    also = [f"also there: {listed(rest)}"] if rest else []
    return _told(frame, [*also, *files.troubles])


def _dumped(files: Files, pattern: RankPattern | None) -> Frame:
    """The one job that dumps and stacks tell of, which is called as their folder is."""
    seen = stacks.read(files.stacks, files.troubles, pattern)
    if files.dumps:
        try:
            return gathering.gathered(files.dumps, files.troubles, seen, pattern)
        except Unreadable as error:
            if not seen.last:
                raise
            files.troubles.append(error.text)
    if not seen.last:
        raise _nothing(files.stacks, [*files.troubles, *seen.notes])
    folder = files.stacks[0].absolute().parent
    return pyspy.frame_of(folder, seen.last, seen.notes, seen.before)


def _filled(frame: Frame, files: Files, pattern: RankPattern | None) -> Frame:
    try:
        return filled(frame, _dumped(files, pattern), files.troubles)
    except Unreadable as error:
        files.troubles.append(error.text)
        return frame


def _called(frame: Frame, job: str | None) -> Frame:
    if job is not None and frame.job is not None and job not in job_names(frame.job):
        title = job_title(frame.job)
        raise Unreadable(f"no job is called {job!r}: there is {title}", f"--job {typed(title)}")
    return frame


def _told(frame: Frame, notes: Sequence[str]) -> Frame:
    if len(notes) > MOST_NOTES:
        notes = [*notes[:MOST_NOTES], f"{len(notes) - MOST_NOTES} more like these"]
    assert frame.recorded is not None
    notes = tuple(dict.fromkeys((*frame.recorded.notes, *notes)))
    return replace(frame, recorded=replace(frame.recorded, notes=notes))


def _chosen(
    captures: list[_Capture], boxes: list[blackbox.Found], job: str | None
) -> tuple[Frame, list[str]]:
    """The newest of what was recorded of a job, and the names of the other files."""
    mine = [one for one in captures if job is None or _is_called(one, job)]
    jobs = blackbox.jobs_of(boxes)
    called = [k for k, found in jobs.items() if job is None or job in blackbox.names(found)]
    if not mine and not called:
        there = [found[0].box.job for found in jobs.values()]
        there += [one.head.job for one in captures if one.head.job is not None]
        known = list[wire.Job](dict.fromkeys(there))
        raise Unreadable(
            f"no job is called {job!r}: there is {listed(list(map(job_place, known)))}",
            f"--job {typed(job_call(known[0], known))}" if known else "leave out --job",
        )
    last_box = max((one.box.wall_ns for one in jobs[called[0]]), default=0) if called else -1
    if mine and mine[0].head.wall_ns > last_box:
        rest = [one.path.name for one in captures if one is not mine[0]]
        return capture.read(mine[0].path), [*rest, *(one.path.name for one in boxes)]
    frame = blackbox.frame_of(jobs[called[0]])
    other = tuple(found[0].box.job for key, found in jobs.items() if key != called[0])
    return replace(frame, other_jobs=other), [one.path.name for one in captures]


def _newest_first(files: Files) -> list[_Capture]:
    found = []
    for path in files.captures:
        try:
            found.append(_Capture(path, capture.head(path)))
        except Unreadable as error:
            files.troubles.append(error.text)
    return sorted(found, key=lambda one: one.head.wall_ns, reverse=True)


def _is_called(one: _Capture, name: str) -> bool:
    return one.head.job is not None and name in job_names(one.head.job)


def _nothing(paths: Sequence[Path], troubles: Sequence[str]) -> Unreadable:
    if troubles:
        return Unreadable(listed(list(troubles)), _NEXT)
    named = listed([str(path) for path in paths])
    text = f"there is no capture and no black box, nor a dump, in {named}"
    if any(map(is_folder, paths)):
        text += "; a recorded job of which no rank ends badly leaves no black box"
    return Unreadable(text, _NEXT)

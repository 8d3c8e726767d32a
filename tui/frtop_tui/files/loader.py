"""Loads the files that a user names, of any kind and mix, as the frame of one job.

Dumps and stacks in one folder belong to one job and moment: together they make its frame. If there
is also a capture or black boxes, these make the frame, and dumps and stacks only add what it lacks,
if they fit (`filling`). Of several captures and black boxes, we load the newest. The frame names
the unused files, and notes what answers of NCCL's RAS say. Logs show the ranks that no other file
does, and are notes on the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from frtop_probe import wire
from frtop_tui.diagnosis.histories import with_trace
from frtop_tui.diagnosis.model import Frame
from frtop_tui.errors import Unreadable
from frtop_tui.files import blackbox, capture, nccl_ras, pyspy, stacks
from frtop_tui.files.bounded_read import Progress, announced, quietly
from frtop_tui.files.filling import filled
from frtop_tui.files.flightrecorder.file_names import RankPattern
from frtop_tui.files.flightrecorder.job_dumps import load_job
from frtop_tui.files.logs import job as logs
from frtop_tui.files.logs.facts import LogFacts
from frtop_tui.files.paths import Files, files_in, is_folder
from frtop_tui.job.naming import job_call, job_names, job_place, job_title, listed, typed
from frtop_tui.job.units import counted

MAX_NOTES: Final = 20
"""On unreadable files; they appear above the verdict."""
_NEXT: Final = (
    "frtop open takes a file of `frtop capture`, a folder of `frtop run --record`, or a folder of"
    " Flight Recorder dumps and py-spy stacks, or logs; if frtop cannot find the rank in their"
    " names, say where it is: --ranks-from 'host*_gpu{rank}'"
)


@dataclass(frozen=True, slots=True)
class _Capture:
    path: Path
    head: capture.CaptureHead


def open_paths(
    paths: Sequence[Path],
    job: str | None = None,
    pattern: RankPattern | None = None,
    *,
    explain: bool = False,
    progress: Progress = quietly,
) -> Frame:
    """Loads the job recorded last, or the one named `job`, as a frame.

    The frame names files that cannot be read. `pattern` says where names of dumps and stacks
    contain the rank; with `explain`, the frame has a trace of its judgement. `progress` is told
    what is being read.

    Raises:
        Unreadable: no file can be read, or none holds that job.
    """
    frame = _opened(paths, job, pattern, progress)
    return with_trace(frame) if explain else replace(frame, trace=None)


def _opened(
    paths: Sequence[Path], job: str | None, pattern: RankPattern | None, progress: Progress
) -> Frame:
    progress("looking for files")
    files = files_in(paths, pattern)
    captures = _newest_first(files, progress)
    boxes: list[blackbox.BoxFile] = []
    for path in announced(files.boxes, "black boxes", progress):
        try:
            boxes.append(blackbox.load(path))
        except Unreadable as error:
            files.refuse(error)
    answers = _answers(files)
    dumped = files.dumps or files.stacks
    facts = logs.read(files.logs, files.problems, pattern, progress) if files.logs else LogFacts()
    if not captures and not boxes:
        if dumped and (found := _dumps_before_logs(files, facts, pattern, progress)) is not None:
            frame = found
        elif facts.some:
            return _of_logs(facts, files, answers)
        elif answers:
            frame = nccl_ras.frame_of(answers)
        elif files.logs:
            raise logs.silent(files.logs, files.problems)
        else:
            raise _nothing(paths, files.problems, files.next_steps)
        _check_name(frame, job)
        frame = _with_logs(frame, facts, files)
        return _with_notes(
            frame, [*logs.said_of(facts, frame), *_said(answers, frame), *files.problems]
        )
    progress(f"judging {counted(len(captures) + len(boxes), 'file')}")
    frame, unused = _load_newest(captures, boxes, job)
    if dumped:
        frame = _fill(frame, files, pattern, progress)
    frame = _with_logs(frame, facts, files)
    also = [f"also there: {listed(unused)}"] if unused else []
    said = [*logs.said_of(facts, frame), *_said(answers, frame)]
    return _with_notes(frame, [*also, *said, *files.problems])


def _dumps_before_logs(
    files: Files, facts: LogFacts, pattern: RankPattern | None, progress: Progress
) -> Frame | None:
    """The job of the dumps; None if none can be read, but logs can."""
    try:
        return _load_dumps(files, pattern, progress)
    except Unreadable:  # torchrun's error.json, say; `problems` names it
        if not facts.some:
            raise
        return None


def _of_logs(facts: LogFacts, files: Files, answers: Sequence[nccl_ras.Answer]) -> Frame:
    frame = logs.frame_of(facts, files.logs)
    return _with_notes(frame, [*_said(answers, frame), *files.problems])


def _answers(files: Files) -> list[nccl_ras.Answer]:
    found = []
    for path in files.answers:
        try:
            found.append(nccl_ras.read(path))
        except Unreadable as error:
            files.refuse(error)
    return found


def _said(answers: Sequence[nccl_ras.Answer], frame: Frame) -> list[str]:
    return [text for answer in answers for text in nccl_ras.said_of(answer, frame)]


def _load_dumps(files: Files, pattern: RankPattern | None, progress: Progress) -> Frame:
    """The one job of the dumps and stacks, named after their folder."""
    seen = stacks.read(files.stacks, files.problems, pattern, progress)
    if files.dumps:
        try:
            return load_job(files.dumps, files.problems, seen, pattern, progress)
        except Unreadable as error:
            if not seen.last:
                raise
            files.refuse(error)
    if not seen.last:
        raise _nothing(files.stacks, [*files.problems, *seen.notes])
    folder = files.stacks[0].absolute().parent
    return pyspy.frame_of(folder, seen.last, seen.notes, seen.before)


def _fill(frame: Frame, files: Files, pattern: RankPattern | None, progress: Progress) -> Frame:
    try:
        return filled(frame, _load_dumps(files, pattern, progress), files.problems)
    except Unreadable as error:
        files.refuse(error)
        return frame


def _with_logs(frame: Frame, facts: LogFacts, files: Files) -> Frame:
    """The frame with those of its ranks that only logs show."""
    if not facts.some:
        return frame
    other = logs.frame_of(facts, files.logs)
    missing = {*other.ranks} - {r for r, one in frame.ranks.items() if one.state != "unreachable"}
    shown = {rank: other.ranks[rank] for rank in sorted(missing)}
    shown = {rank: one for rank, one in shown.items() if one.state != "unreachable"}
    return filled(frame, replace(other, ranks=shown), files.problems) if shown else frame


def _check_name(frame: Frame, job: str | None) -> None:
    """Raises `Unreadable` unless the frame's job is called `job`."""
    if job is not None and frame.job is not None and job not in job_names(frame.job):
        title = job_title(frame.job)
        raise Unreadable(f"no job is called {job!r}: there is {title}", f"--job {typed(title)}")


def _with_notes(frame: Frame, notes: Sequence[str]) -> Frame:
    if len(notes) > MAX_NOTES:
        notes = [*notes[:MAX_NOTES], f"{len(notes) - MAX_NOTES} more like these"]
    assert frame.recorded is not None
    notes = tuple(dict.fromkeys((*frame.recorded.notes, *notes)))
    return replace(frame, recorded=replace(frame.recorded, notes=notes))


def _load_newest(
    captures: list[_Capture], boxes: list[blackbox.BoxFile], job: str | None
) -> tuple[Frame, list[str]]:
    """The newest capture or black boxes of a job, and the names of the other files."""
    mine = [one for one in captures if job is None or _is_named(one, job)]
    jobs = blackbox.jobs_of(boxes)
    named = [k for k, found in jobs.items() if job is None or job in blackbox.names_of(found)]
    if not mine and not named:
        there = [found[0].box.job for found in jobs.values()]
        there += [one.head.job for one in captures if one.head.job is not None]
        known = list[wire.Job](dict.fromkeys(there))
        raise Unreadable(
            f"no job is called {job!r}: there is {listed(list(map(job_place, known)))}",
            f"--job {typed(job_call(known[0], known))}" if known else "leave out --job",
        )
    last_box = max((one.box.wall_ns for one in jobs[named[0]]), default=0) if named else -1
    if mine and mine[0].head.wall_ns > last_box:
        rest = [one.path.name for one in captures if one is not mine[0]]
        return capture.read(mine[0].path), [*rest, *(one.path.name for one in boxes)]
    frame = blackbox.frame_of(jobs[named[0]])
    other = tuple(found[0].box.job for key, found in jobs.items() if key != named[0])
    return replace(frame, other_jobs=other), [one.path.name for one in captures]


def _newest_first(files: Files, progress: Progress) -> list[_Capture]:
    found = []
    for path in announced(files.captures, "captures", progress):
        try:
            found.append(_Capture(path, capture.read_head(path)))
        except Unreadable as error:
            files.refuse(error)
    return sorted(found, key=lambda one: one.head.wall_ns, reverse=True)


def _is_named(one: _Capture, name: str) -> bool:
    return one.head.job is not None and name in job_names(one.head.job)


def _nothing(
    paths: Sequence[Path], problems: Sequence[str], steps: Sequence[str] = ()
) -> Unreadable:
    if problems:
        is_one = len(steps) == len(problems) and len(set(steps)) == 1
        return Unreadable(listed(list(problems)), steps[0] if is_one else _NEXT)
    named = listed([str(path) for path in paths])
    text = f"there is no capture, black box or dump in {named}"
    if any(map(is_folder, paths)):
        text += "; a recorded job leaves a black box only if a rank ends badly"
    return Unreadable(text, _NEXT)

"""What a person names, opened: captures, black boxes, what others dumped, folders of these."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from frtop_probe import archive
from frtop_tui.errors import Unreadable
from frtop_tui.export import blackbox, capture
from frtop_tui.export.flightrecorder import gathering, reading
from frtop_tui.job.model import Frame
from frtop_tui.job.naming import job_names, job_place, job_title, listed, typed

SUFFIXES: Final = (".cap", blackbox.SUFFIX)
MOST_FILES: Final = 4096
_NEXT: Final = (
    "frtop open takes what `frtop capture` wrote, a folder of `frtop run --record`, or one of"
    " Flight Recorder dumps"
)


@dataclass(slots=True)
class _Files:
    captures: list[Path] = field(default_factory=list)
    boxes: list[Path] = field(default_factory=list)
    dumps: list[Path] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Capture:
    path: Path
    head: capture.Head


def open_paths(paths: Sequence[Path], job: str | None = None) -> Frame:
    """The job that these files tell of: the one recorded last, or the one called `job`.

    What cannot be read is named in the frame as long as something can.

    Raises:
        Unreadable: nothing there can be read, or nothing tells of that job.
    """
    files = _sorted(_files(paths))
    captures = _newest_first(files)
    boxes: list[blackbox.Found] = []
    for path in files.boxes:
        try:
            boxes.append(blackbox.load(path))
        except Unreadable as error:
            files.troubles.append(error.text)
    if not captures and not boxes and files.dumps:
        return _dumped(files, job)
    if not captures and not boxes:
        raise _nothing(paths, files.troubles)
    if files.dumps:
        few = listed([path.name for path in files.dumps], 3)
        files.troubles.append(f"not shown, open them by themselves: {few}")
    return _chosen(captures, boxes, job, files.troubles)


def _dumped(files: _Files, job: str | None) -> Frame:
    """The one job that dumps tell of, which is called as their folder is."""
    frame = gathering.gathered(files.dumps, files.troubles)
    if job is not None and frame.job is not None and job not in job_names(frame.job):
        title = job_title(frame.job)
        raise Unreadable(f"no job is called {job!r}: there is {title}", f"--job {typed(title)}")
    assert frame.recorded is not None
    told = replace(frame.recorded, notes=(*frame.recorded.notes, *files.troubles))
    return replace(frame, recorded=told)


def _chosen(
    captures: list[_Capture],
    boxes: list[blackbox.Found],
    job: str | None,
    troubles: list[str],
) -> Frame:
    mine = [one for one in captures if job is None or _is_called(one, job)]
    jobs = blackbox.jobs_of(boxes)
    called = [k for k, found in jobs.items() if job is None or job in blackbox.names(found)]
    if not mine and not called:
        there = [found[0].box.job for found in jobs.values()]
        there += [one.head.job for one in captures if one.head.job is not None]
        known = list(dict.fromkeys(there))
        raise Unreadable(
            f"no job is called {job!r}: there is {listed(list(map(job_place, known)))}",
            f"--job {typed(job_title(known[0]))}" if known else "leave out --job",
        )
    last_box = max((one.box.wall_ns for one in jobs[called[0]]), default=0) if called else -1
    if mine and mine[0].head.wall_ns > last_box:
        frame = capture.read(mine[0].path)
        rest = [one.path.name for one in captures if one is not mine[0]]
        rest += [one.path.name for one in boxes]
    else:
        frame = blackbox.frame_of(jobs[called[0]])
        other = tuple(found[0].box.job for key, found in jobs.items() if key != called[0])
        frame = replace(frame, other_jobs=other)
        rest = [one.path.name for one in captures]
    notes = [*troubles, *([f"also there: {listed(rest)}"] if rest else [])]
    assert frame.recorded is not None
    told = replace(frame.recorded, notes=(*frame.recorded.notes, *notes))
    return replace(frame, recorded=told)


def _files(paths: Iterable[Path]) -> list[Path]:
    """The files themselves, and of folders those that look like ours, also one deeper."""
    found: dict[Path, None] = {}
    for path in paths:
        if not path.is_dir():
            found[path] = None
            continue
        inside = [p for pattern in ("*", "*/*") for p in path.glob(pattern)]
        ours = sorted(
            p for p in inside if (p.suffix in SUFFIXES or gathering.is_usual(p)) and p.is_file()
        )
        found.update(dict.fromkeys(ours))
    return list(found)[:MOST_FILES]


def _sorted(paths: Iterable[Path]) -> _Files:
    files = _Files()
    for path in paths:
        try:
            kind = archive.kind_of(path)
            dump = not kind and path.suffix not in SUFFIXES and reading.looks_like(path)
        except OSError as error:
            files.troubles.append(f"{path} cannot be read: {error.strerror}")
            continue
        if kind == capture.KIND:
            files.captures.append(path)
        elif kind == blackbox.KIND:
            files.boxes.append(path)
        elif dump:
            files.dumps.append(path)
        else:
            files.troubles.append(
                f"{path} is neither a capture nor a black box nor a dump that is known"
            )
    return files


def _newest_first(files: _Files) -> list[_Capture]:
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
        return Unreadable(listed(troubles), _NEXT)
    named = listed([str(path) for path in paths])
    text = f"there is no capture and no black box, nor a dump, in {named}"
    if any(path.is_dir() for path in paths):
        text += "; a recorded job of which no rank ends badly leaves no black box"
    return Unreadable(text, _NEXT)

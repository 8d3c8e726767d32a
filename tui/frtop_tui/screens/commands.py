"""The table of commands: keys, help, completion and docs/keys.md read it.

To add a screen of the core, add a line to `VIEWS`; for another command, one to `COMMANDS`. Features
have theirs in their modules `screens`.
"""

from __future__ import annotations

from operator import attrgetter
from pathlib import Path
from typing import Final

from frtop_tui.files.formats.registry import FORMATS
from frtop_tui.files.output_path import default_path, expanded
from frtop_tui.files.paths import is_folder
from frtop_tui.job.naming import is_called, job_call
from frtop_tui.screens.availability import why_unavailable
from frtop_tui.screens.completion import (
    Action,
    CommandError,
    CommandScope,
    Outcome,
    TypedCommand,
    nearest,
    rank_numbers,
    rank_of,
)
from frtop_tui.screens.contributed import View, of_features
from frtop_tui.screens.filter import WORDS, FilterError, matching
from frtop_tui.screens.hosts import HostsScreen
from frtop_tui.screens.messages import (
    CaptureJob,
    ChooseJob,
    ExportJob,
    LookThrough,
    OpenGroup,
    OpenRank,
    OpenRanks,
)
from frtop_tui.screens.overview import Overview
from frtop_tui.screens.ranks import RanksScreen
from frtop_tui.screens.settings import SettingsScreen
from frtop_tui.screens.stacks import StacksScreen
from frtop_tui.screens.waits import WaitsScreen
from frtop_tui.widgets.lenses import LENSES


def group_names(situation: CommandScope) -> list[str]:
    return [group.label for group in situation.frame.groups]


def host_names(situation: CommandScope) -> list[str]:
    return [host.name for host in situation.frame.hosts]


def job_calls(situation: CommandScope) -> list[str]:
    """What to type for each of the other jobs."""
    frame = situation.frame
    everyone = (*frame.other_jobs, *((frame.job,) if frame.job is not None else ()))
    return [job_call(job, everyone) for job in frame.other_jobs]


def _rank(text: str, situation: CommandScope) -> Outcome:
    return OpenRank(rank_of(text, situation))


def _group(text: str, situation: CommandScope) -> Outcome:
    names = group_names(situation)
    exact = [g.key for g in situation.frame.groups if g.label == text]
    found = exact or [g.key for g in situation.frame.groups if g.label.startswith(text)]
    if not found:
        raise CommandError(f"no group {text}{nearest(text, names)}")
    return OpenGroup(tuple(found))


def _lens(text: str, _: CommandScope) -> Outcome:
    if text not in LENSES:
        raise CommandError(f"no lens {text}{nearest(text, tuple(LENSES))}")
    return LookThrough(text)


def _host(text: str, situation: CommandScope) -> Outcome:
    names = host_names(situation)
    if text not in names:
        raise CommandError(f"no host {text}{nearest(text, names)}")
    return OpenRanks(f"host:{text}")


def _filter(text: str, situation: CommandScope) -> Outcome:
    try:
        matching(text, situation.frame, situation.marked)
    except FilterError as error:
        raise CommandError(str(error)) from None
    return OpenRanks(text)


def _job(text: str, situation: CommandScope) -> Outcome:
    frame = situation.frame
    if reason := why_unavailable("choose_job", frame):
        raise CommandError(reason)
    found = [job for job in frame.other_jobs if is_called(job, text)]
    if len(found) == 1:
        return ChooseJob(found[0])
    if found:
        raise CommandError(f"{len(found)} jobs are called {text}; J lists them")
    if frame.job is not None and is_called(frame.job, text):
        raise CommandError(f"{text} is the job on the screen")
    raise CommandError(f"no other job {text}{nearest(text, job_calls(situation))}")


def _path(text: str) -> Path:
    path = expanded(text)
    if not is_folder(path.parent):
        raise CommandError(f"there is no folder {path.parent}")
    if is_folder(path):
        raise CommandError(f"{path} is a folder: name a file in it")
    return path


def _capture(text: str, situation: CommandScope) -> Outcome:
    return CaptureJob(_path(text)) if text else CaptureJob(unnamed_path(situation, ".cap"))


def _export(text: str, situation: CommandScope) -> Outcome:
    name, _, path = text.partition(" ")
    if name not in FORMATS:
        raise CommandError(f"no format {name}{nearest(name, tuple(FORMATS))}")
    if path.strip():
        return ExportJob(_path(path.strip()), name)
    return ExportJob(unnamed_path(situation, FORMATS[name].suffix), name)


def unnamed_path(situation: CommandScope, suffix: str) -> Path:
    """An unused path, for a file that the user does not name.

    Raises:
        CommandError: the current folder was deleted.
    """
    try:
        frame = situation.frame
        return default_path(frame, frame.wall_ns, suffix, folder=situation.preferences.folder)
    except OSError as error:
        raise CommandError(f"cannot write in this folder ({error.strerror})") from None


_CORE: Final = (
    View("job", Overview, "overview of the job", "1", argument="[NAME]", run=_job,
         values=job_calls, place=10),
    View("ranks", RanksScreen, "all ranks as a table", "2", show=True, place=20),
    View("hosts", HostsScreen, "state of every host", "3", show=True, place=30),
    View("stacks", StacksScreen, "merged stacks", "4", place=40),
    View("waits", WaitsScreen, "who waits for whom", place=80),
    View("settings", SettingsScreen, "settings of the job that differ between ranks", place=100),
)  # fmt: skip
VIEWS: Final = tuple(
    sorted(
        (*_CORE, *(view for one in of_features() for view in one.views)), key=attrgetter("place")
    )
)
"""The overview is first: the others open on top of it."""


_of_features: Final = [command for one in of_features() for command in one.commands]
COMMANDS: Final[tuple[TypedCommand, ...]] = (
    *(view.command for view in VIEWS),
    TypedCommand("rank", "queue, stacks and process of a rank", _rank, "N", rank_numbers),
    TypedCommand("group", "one process group, and those alike", _group, "NAME", group_names),
    TypedCommand("lens", "ranks of the overview by lag, skew, ...", _lens, "NAME",
                 lambda _: LENSES),
    TypedCommand("host", "ranks of a host", _host, "NAME", host_names),
    TypedCommand("filter", "ranks that match, like /", _filter, "TEXT",
            lambda _: ("rank:", "host:", "group:", *WORDS), key="/"),
    *(one.command for one in sorted(_of_features, key=attrgetter("place"))),
    TypedCommand("jobs", "list all jobs", lambda *_: Action("jobs"), key="J"),
    TypedCommand("capture", "write everything known to a file", _capture, "[PATH]", key="e",
            needs="capture"),
    TypedCommand("export", "write a report, a trace, stacks, ...", _export, "FORMAT [PATH]",
            lambda _: FORMATS, key="E", needs="export"),
    TypedCommand("copy", "copy the row or pane with the cursor, or the verdict",
                 lambda *_: Action("copy"), key="y"),
    TypedCommand("pause", "freeze the screen, or resume", lambda *_: Action("pause"), key="Z"),
    TypedCommand("live", "from earlier frames back to live", lambda *_: Action("live")),
    TypedCommand("help", "all keys, commands and a glossary", lambda *_: Action("help"), key="?"),
    TypedCommand("back", "previous screen, and from the first one out of frtop",
                 lambda *_: Action("back_or_quit"), key="q"),
    TypedCommand("quit", "leave frtop", lambda *_: Action("quit"), key="Q"),
)  # fmt: skip


def view_of(name: str) -> View:
    """The view of this name."""
    return next(view for view in VIEWS if view.name == name)

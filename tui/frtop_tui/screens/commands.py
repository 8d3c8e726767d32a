"""The table of commands: keys, help, completion and docs/keys.md read it.

A screen is registered by one line of `VIEWS`; another command by one line of `COMMANDS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from textual.binding import Binding

from frtop_tui.features.modules.view import ModulesScreen
from frtop_tui.features.statistics.view import StatisticsScreen
from frtop_tui.features.tensor_checks.orders import RecordOrder, note_problem
from frtop_tui.features.tensor_checks.view import RecordScreen, target_ranks
from frtop_tui.features.timeline.queues_view import QueuesScreen
from frtop_tui.features.timeline.view import TimelineScreen
from frtop_tui.files.format_names import FORMAT_NAMES, SUFFIXES
from frtop_tui.files.output_path import default_path
from frtop_tui.job.naming import is_called, job_call
from frtop_tui.screens.availability import why_unavailable
from frtop_tui.screens.base import FrameScreen
from frtop_tui.screens.completion import (
    Action,
    CommandError,
    CommandScope,
    Outcome,
    TypedCommand,
    nearest,
    nothing_to_name,
)
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
    OpenTensors,
    OrderRecord,
)
from frtop_tui.screens.overview import Overview
from frtop_tui.screens.ranks import RanksScreen
from frtop_tui.screens.settings import SettingsScreen
from frtop_tui.screens.stacks import StacksScreen
from frtop_tui.screens.waits import WaitsScreen
from frtop_tui.widgets.formats import group_name
from frtop_tui.widgets.lenses import LENSES

WINDOWS: Final = {"10s": 10.0, "60s": 60.0, "all": 0.0}


@dataclass(frozen=True, slots=True)
class View:
    """A screen that a key and a command of the same name open, on top of the overview."""

    name: str
    screen: Callable[[set[int]], FrameScreen]
    summary: str
    key: str = ""
    show: bool = False
    """Whether the last line of the screen lists the key."""
    argument: str = ""
    run: Callable[[str, CommandScope], Outcome] | None = None
    """What the command does with an argument."""
    values: Callable[[CommandScope], Iterable[str]] = nothing_to_name

    @property
    def binding(self) -> Binding:
        return Binding(
            self.key,
            f"view('{self.name}')",
            self.name,
            show=self.show,
            tooltip=self.summary,
            id=f"view.{self.name}",
        )

    @property
    def command(self) -> TypedCommand:
        return TypedCommand(
            self.name, self.summary, self.outcome, self.argument, self.values, key=self.key
        )

    def outcome(self, text: str, situation: CommandScope) -> Outcome:
        """Without an argument the same as its key."""
        if text and self.run is not None:
            return self.run(text, situation)
        return Action(f"view('{self.name}')")


def _stats(text: str, situation: CommandScope) -> Outcome:
    if text not in WINDOWS:
        raise CommandError(f"no window {text}{nearest(text, tuple(WINDOWS))}")
    return StatisticsScreen(situation.marked, WINDOWS[text])


def numbers(situation: CommandScope) -> Iterable[str]:
    """The ranks of the frame."""
    return map(str, sorted(situation.frame.ranks))


def group_names(situation: CommandScope) -> list[str]:
    return [group_name(group) for group in situation.frame.groups]


def host_names(situation: CommandScope) -> list[str]:
    return [host.name for host in situation.frame.hosts]


def job_calls(situation: CommandScope) -> list[str]:
    """What to type for each of the other jobs."""
    frame = situation.frame
    everyone = (*frame.other_jobs, *((frame.job,) if frame.job is not None else ()))
    return [job_call(job, everyone) for job in frame.other_jobs]


def rank_of(text: str, situation: CommandScope) -> int:
    """A rank of the job.

    Raises:
        CommandError: it is none.
    """
    frame = situation.frame
    world = frame.job.world_size if frame.job is not None else 0
    if text.isdecimal() and (int(text) in frame.ranks or int(text) < world):
        return int(text)
    most = max((world - 1, *frame.ranks))
    raise CommandError(f"{text} is no rank; the job has 0 to {most}" if most >= 0 else "no ranks")


def _rank(text: str, situation: CommandScope) -> Outcome:
    return OpenRank(rank_of(text, situation))


def _tensors(text: str, situation: CommandScope) -> Outcome:
    return OpenTensors(rank_of(text, situation))


def _group(text: str, situation: CommandScope) -> Outcome:
    names = group_names(situation)
    exact = [g.key for g in situation.frame.groups if group_name(g) == text]
    found = exact or [g.key for g in situation.frame.groups if group_name(g).startswith(text)]
    if not found:
        raise CommandError(f"no group {text}{nearest(text, names)}")
    return OpenGroup(found)


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


def _note(text: str, situation: CommandScope) -> Outcome:
    ranks = target_ranks(situation.frame, situation.marked)
    if problem := note_problem(text):
        raise CommandError(problem)
    if not ranks:
        raise CommandError("no rank is heard")
    return OrderRecord(RecordOrder(ranks, note=text))


def _path(text: str) -> Path:
    path = Path(text).expanduser()
    if not path.parent.is_dir():
        raise CommandError(f"there is no folder {path.parent}")
    if path.is_dir():
        raise CommandError(f"{path} is a folder: name a file in it")
    return path


def _capture(text: str, situation: CommandScope) -> Outcome:
    return CaptureJob(_path(text)) if text else CaptureJob(unnamed_path(situation, ".cap"))


def _export(text: str, situation: CommandScope) -> Outcome:
    name, _, path = text.partition(" ")
    if name not in FORMAT_NAMES:
        raise CommandError(f"no format {name}{nearest(name, tuple(FORMAT_NAMES))}")
    if path.strip():
        return ExportJob(_path(path.strip()), name)
    return ExportJob(unnamed_path(situation, SUFFIXES[name]), name)


def unnamed_path(situation: CommandScope, suffix: str) -> Path:
    """A path that nothing has, for a file that the user does not name.

    Raises:
        CommandError: the current folder was deleted.
    """
    try:
        frame = situation.frame
        return default_path(frame, frame.wall_ns, suffix, folder=situation.preferences.folder)
    except OSError as error:
        raise CommandError(f"cannot write in this folder ({error.strerror})") from None


VIEWS: Final = (
    View("job", Overview, "overview of the job", "1", argument="[NAME]", run=_job,
         values=job_calls),
    View("ranks", RanksScreen, "all ranks as a table", "2", show=True),
    View("hosts", HostsScreen, "state of every host", "3", show=True),
    View("stacks", StacksScreen, "merged stacks", "4"),
    View("stats", StatisticsScreen, "what ops cost, who comes last, where a step goes", "5",
         argument="[10s|60s|all]", run=_stats, values=lambda _: WINDOWS),
    View("timeline", TimelineScreen, "who did what when, on one clock"),
    View("queues", QueuesScreen, "queues of some ranks side by side"),
    View("waits", WaitsScreen, "who waits for whom"),
    View("modules", ModulesScreen, "ops by the module and phase that issued them, as a tree"),
    View("settings", SettingsScreen, "settings of the job that differ between ranks"),
    View("record", RecordScreen, "what ranks record, changed while they run; sampled numbers"),
)  # fmt: skip
"""The overview is the first one: the others lie on top of it."""


COMMANDS: Final[tuple[TypedCommand, ...]] = (
    *(view.command for view in VIEWS),
    TypedCommand("rank", "queue, stacks and process of a rank", _rank, "N", numbers),
    TypedCommand("group", "one process group, and those alike", _group, "NAME", group_names),
    TypedCommand("lens", "ranks of the overview by lag, skew, ...", _lens, "NAME",
                 lambda _: LENSES),
    TypedCommand("host", "ranks of a host", _host, "NAME", host_names),
    TypedCommand("filter", "ranks that match, as after /", _filter, "TEXT",
            lambda _: ("rank:", "host:", "group:", *WORDS), key="/"),
    TypedCommand("tensors", "tensors of a rank's pending ops", _tensors, "N", numbers,
                 needs="tensors"),
    TypedCommand("note", "note something in the rings of the marked ranks, or of all", _note,
                 "TEXT", key="a", needs="order"),
    TypedCommand("profile", "torch's profiler in the marked ranks", lambda *_: Action("profile"),
            key="P", needs="profile"),
    TypedCommand("flame", "sampled stacks of the marked ranks", lambda *_: Action("flame"),
            key="r"),
    TypedCommand("jobs", "list all jobs", lambda *_: Action("jobs"), key="J"),
    TypedCommand("capture", "write everything known to a file", _capture, "[PATH]", key="e",
            needs="capture"),
    TypedCommand("export", "write a report, a trace, stacks, ...", _export, "FORMAT [PATH]",
            lambda _: FORMAT_NAMES, key="E", needs="export"),
    TypedCommand("copy", "copy the verdict", lambda *_: Action("copy"), key="y"),
    TypedCommand("pause", "freeze the screen, or resume", lambda *_: Action("pause"), key="Z"),
    TypedCommand("live", "from frames of the past to now", lambda *_: Action("live")),
    TypedCommand("help", "all keys and a glossary", lambda *_: Action("help"), key="?"),
    TypedCommand("quit", "leave frtop", lambda *_: Action("quit"), key="q"),
)  # fmt: skip


def view_of(name: str) -> View:
    """The view of this name."""
    return next(view for view in VIEWS if view.name == name)

"""The Textual application: wires a source to screens, and nothing else.

It pulls: a frame is taken from the source four times a second and handed down to the
screen in sight. So a slow terminal delays itself only, and a pause is one kept frame.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterable
from functools import partial
from pathlib import PurePath
from typing import ClassVar, Final

from textual.app import SystemCommand
from textual.binding import Binding, BindingType
from textual.notifications import SeverityLevel
from textual.screen import Screen

from frtop_tui.diagnosis.judged import Frame
from frtop_tui.export.naming import default_path
from frtop_tui.job.model import Writing
from frtop_tui.job.naming import JobKey, job_key, printable
from frtop_tui.screens.automatic import due
from frtop_tui.screens.base import (
    ChooseJob,
    FrameScreen,
    InspectRank,
    OpenRank,
    OpenRanks,
    OpenTensors,
    SaveTensors,
    TakeStacks,
)
from frtop_tui.screens.help import HelpScreen, key_rows
from frtop_tui.screens.hosts import HostsScreen
from frtop_tui.screens.jobs import JobsScreen
from frtop_tui.screens.keyboard import OrderedKeys
from frtop_tui.screens.overview import Overview
from frtop_tui.screens.painting import FrugalApp
from frtop_tui.screens.rank import RankScreen
from frtop_tui.screens.ranks import RanksScreen
from frtop_tui.screens.stacks import StacksScreen
from frtop_tui.screens.tensors import TensorsScreen
from frtop_tui.sources.base import Source
from frtop_tui.terminal import TerminalGone, is_there, watched
from frtop_tui.widgets.wording import age, job_name
from frtop_tui.widgets.writings import UNDER_WAY, sentence

TICK_S: Final = 0.25
LOST: Final = 128 + signal.SIGHUP
"""Exit status when the terminal went away and nothing could be asked of the application."""


class FrtopApp(OrderedKeys, FrugalApp, inherit_bindings=False):
    """One job on the screen."""

    TITLE = "frtop"
    CSS_PATH: ClassVar[list[str | PurePath]] = [
        "widgets/tones.tcss",
        "screens/base.tcss",
        "screens/overview.tcss",
        "screens/rank.tcss",
        "screens/ranks.tcss",
        "screens/stacks.tcss",
        "screens/tensors.tcss",
        "screens/hosts.tcss",
        "screens/jobs.tcss",
        "screens/help.tcss",
        "app.tcss",
    ]
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("question_mark", "help", "help", tooltip="all keys of this screen", id="help"),
        Binding("1", "view('job')", "job", show=False, tooltip="verdict and ranks", id="view.job"),
        Binding("2", "view('ranks')", "ranks", tooltip="all ranks as a table", id="view.ranks"),
        Binding(
            "3",
            "view('hosts')",
            "hosts",
            tooltip="who is heard, and what is wrong",
            id="view.hosts",
        ),
        Binding(
            "4", "view('stacks')", "stacks", show=False, tooltip="merged stacks", id="view.stacks"
        ),
        Binding("J", "jobs", "jobs", tooltip="choose among all jobs heard", id="jobs"),
        Binding("e", "capture", "capture", tooltip="write all that is known", id="capture"),
        Binding("Z", "pause", "pause", tooltip="keep this moment on the screen", id="pause"),
        Binding("y", "copy", "copy", tooltip="copy the verdict", id="copy"),
        Binding("q", "quit", "quit", id="quit"),
        Binding("ctrl+c", "quit", "quit", show=False, id="interrupt", priority=True),
        Binding("ctrl+l", "refresh", "redraw", show=False, id="redraw"),
        Binding("ctrl+z", "suspend_process", "suspend", show=False, id="suspend"),
        Binding("ctrl+p", "command_palette", "commands", show=False, id="palette"),
    ]

    def __init__(self, source: Source, title: str = "frtop", *, auto_capture: bool = True) -> None:
        super().__init__()
        self.source = source
        self.auto_capture = auto_capture
        self.title = title
        self.marked: set[int] = set()
        self.kept: Frame | None = None
        """The frame of the moment of the pause."""
        self._watching: tuple[int, ...] = ()
        self._captured: set[JobKey] = set()
        """Jobs that were captured by themselves: once each."""
        self._writings: tuple[Writing, ...] = ()
        self._home_loop: asyncio.AbstractEventLoop | None = None

    def get_default_screen(self) -> Screen[None]:
        return Overview(self.marked)

    def on_mount(self) -> None:
        self._home_loop = asyncio.get_running_loop()
        self.deliver()
        self.set_interval(TICK_S, self.deliver)

    def deliver(self) -> None:
        """Gives the newest frame, or the kept one, to the screen in sight."""
        newest = self.source.frame()
        self._keep(newest)
        screen = self.screen
        if not isinstance(screen, FrameScreen):
            return
        badge = ""
        if self.kept is not None:
            behind = age(max(0, newest.now_ns - self.kept.now_ns) / 1e9)
            badge = f"PAUSED, {behind} behind: Z goes on"
        screen.show(newest if self.kept is None else self.kept, badge)
        if screen.watches != self._watching:
            self._watching = screen.watches
            self.source.watch(self._watching)

    def _keep(self, frame: Frame) -> None:
        """What goes on whatever is in sight, and also in a pause: files."""
        key = due(frame, self._captured) if self.auto_capture else None
        if key is not None:
            self._captured.add(key)
            self._capture(frame, automatic=True)
        if frame.writings == self._writings:
            return
        for writing in frame.writings:
            if writing.state in UNDER_WAY or writing in self._writings:
                continue
            # Where a pane has a line for it, that is enough; elsewhere it would pass unseen.
            told = isinstance(self.screen, Overview) or (
                writing.kind == "tensors" and isinstance(self.screen, TensorsScreen)
            )
            if not told:
                failed = writing.state == "failed"
                severity: SeverityLevel = "warning" if failed else "information"
                text = printable(sentence(writing))
                self.notify(text, timeout=8, severity=severity, markup=False)
        self._writings = frame.writings

    def leave(self, status: int) -> None:
        """Ends from outside the loop: a signal, or a terminal that is gone."""
        driver = self._driver
        if not is_there(0):
            # Textual's thread of keys would read the end of the terminal for ever.
            ended = getattr(driver, "exit_event", None)
            if ended is not None:
                ended.set()
        if self._home_loop is not None:
            self._home_loop.call_soon_threadsafe(partial(self.exit, return_code=status))

    async def open(self, screen: FrameScreen) -> None:
        """Puts a screen on top of the path; it shows the present frame at once."""
        await self.push_screen(screen)
        self.deliver()

    async def action_back(self) -> None:
        """One step back along the path; the job's own screen is where it starts."""
        if len(self.screen_stack) > 1:
            await self.pop_screen()
            self.deliver()

    async def action_view(self, name: str) -> None:
        """One of the numbered views, with the job's screen under it."""
        while len(self.screen_stack) > 1:
            await self.pop_screen()
        if name == "ranks":
            await self.open(RanksScreen(self.marked))
        elif name == "hosts":
            await self.open(HostsScreen(self.marked))
        elif name == "stacks":
            await self.open(StacksScreen(self.marked))
        self.deliver()

    async def action_help(self) -> None:
        """The keys of the screen in sight; once more closes it."""
        screen = self.screen
        if isinstance(screen, HelpScreen):
            await self.pop_screen()
        elif isinstance(screen, FrameScreen):
            keys = key_rows(screen.active_bindings.values(), screen.barred)
            await self.open(HelpScreen(self.marked, keys, screen.crumb))

    async def on_open_rank(self, event: OpenRank) -> None:
        await self.open(RankScreen(self.marked, event.rank))

    async def on_open_ranks(self, event: OpenRanks) -> None:
        await self.open(RanksScreen(self.marked, event.filter_text, editing=event.editing))

    async def on_open_stacks(self) -> None:
        await self.open(StacksScreen(self.marked))

    async def on_open_tensors(self, event: OpenTensors) -> None:
        await self.open(TensorsScreen(self.marked, event.rank, event.instead))

    async def action_jobs(self) -> None:
        """The jobs to choose from, over whatever is in sight."""
        if not isinstance(self.screen, JobsScreen):
            await self.open(JobsScreen(self.marked))

    async def on_choose_job(self, event: ChooseJob) -> None:
        """On to another job, from its first screen on; marks were of the old one's ranks."""
        self.marked.clear()
        self.source.choose(job_key(event.job))
        await self.action_view("job")

    def on_inspect_rank(self, event: InspectRank) -> None:
        self.source.inspect(event.rank)

    def on_save_tensors(self, event: SaveTensors) -> None:
        self.source.save(event.rank, event.sequence, event.path)

    def action_capture(self) -> None:
        """Everything that is known, in one file in this folder."""
        screen = self.screen
        if isinstance(screen, FrameScreen) and screen.may("capture"):
            self._capture(self.source.frame())

    def _capture(self, frame: Frame, *, automatic: bool = False) -> None:
        try:
            path = default_path(frame, frame.wall_ns)
        except OSError as error:  # the current folder was taken away
            text = f"Nothing can be captured here ({error.strerror}); start frtop elsewhere."
            self.notify(text, markup=False)
        else:
            self.source.capture(path, automatic=automatic)

    def on_take_stacks(self, event: TakeStacks) -> None:
        self.source.dump(event.ranks)

    def action_pause(self) -> None:
        """Keeps the frame in sight; once more goes on with the newest."""
        if isinstance(self.screen, FrameScreen) and not self.screen.may("pause"):
            return
        self.kept = self.source.frame() if self.kept is None else None
        self.deliver()

    def action_copy(self) -> None:
        """The verdict as text, through the terminal (OSC 52) to the operator's clipboard."""
        frame = self.kept or self.source.frame()
        if not frame.verdicts:
            self.notify("Nothing to copy: there is no verdict.", timeout=4)
            return
        rows = [job_name(frame)]
        for verdict in frame.verdicts:
            rows += [verdict.headline, f"why: {verdict.why.text}", f"next: {verdict.next}"]
            rows += [f"seen: {seen}" for seen in verdict.evidence]
        self.copy_to_clipboard("\n".join(map(printable, rows)))
        self.notify("Verdict sent to your terminal's clipboard.", timeout=4)

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """The palette offers what the keys do, under names; nothing of Textual's own."""
        for _, binding, enabled, _ in screen.active_bindings.values():
            if enabled and binding.id and binding.show:
                run = partial(self.run_action, binding.action, screen)
                yield SystemCommand(binding.description, binding.tooltip, run)


def run_app(source: Source, title: str = "frtop", *, auto_capture: bool = True) -> int:
    """Shows a source until the user leaves, or the terminal does. Returns an exit status.

    With `auto_capture` a confirmed hang is written to the current folder by itself, once.
    Threads of the terminal may outlive it: `terminal.end` is for the end of the process.
    """
    app = FrtopApp(source, title, auto_capture=auto_capture)
    try:
        with watched(app.leave):
            app.run()
    except TerminalGone:
        return LOST
    finally:
        source.close()
    return app.return_code or 0

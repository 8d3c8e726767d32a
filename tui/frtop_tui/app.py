"""The Textual application: connects a source to the screens.

On every tick it takes the newest frame from the source, sends requests and gives the frame
to the visible screen. A slow terminal delays only itself; a pause is one remembered frame.
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

from frtop_tui.diagnosis.model import Frame
from frtop_tui.export.output_path import default_path
from frtop_tui.job.model import Writing
from frtop_tui.job.naming import JobKey, duration, job_key, printable
from frtop_tui.report.alarm import job_to_capture
from frtop_tui.screens.base import FrameScreen
from frtop_tui.screens.export import ExportScreen
from frtop_tui.screens.group import GroupScreen
from frtop_tui.screens.help import HelpScreen, key_rows
from frtop_tui.screens.hosts import HostsScreen
from frtop_tui.screens.jobs import JobsScreen
from frtop_tui.screens.keyboard import OrderedKeys
from frtop_tui.screens.messages import (
    AskRas,
    ChooseJob,
    ExportJob,
    InspectRank,
    OpenGroup,
    OpenQueues,
    OpenRank,
    OpenRanks,
    OpenRas,
    OpenTensors,
    OpenTimeline,
    SaveTensors,
    TakeNativeStacks,
    TakeStacks,
)
from frtop_tui.screens.overview import Overview
from frtop_tui.screens.painting import CompactApp
from frtop_tui.screens.queues import QueuesScreen
from frtop_tui.screens.rank import RankScreen
from frtop_tui.screens.ranks import RanksScreen
from frtop_tui.screens.ras import RasScreen
from frtop_tui.screens.settings import SettingsScreen
from frtop_tui.screens.stacks import StacksScreen
from frtop_tui.screens.tensors import TensorsScreen
from frtop_tui.screens.timeline import TimelineScreen
from frtop_tui.screens.waits import WaitsScreen
from frtop_tui.sources.base import Source
from frtop_tui.statistics.wanted import StatisticsWanted
from frtop_tui.terminal import TerminalGone, is_there, watched
from frtop_tui.widgets.file_status import IN_PROGRESS, describe_file
from frtop_tui.widgets.verdict import verdict_text

TICK_S: Final = 0.25
VIEWS: Final = {"ranks": RanksScreen, "hosts": HostsScreen, "stacks": StacksScreen}
LOST: Final = 128 + signal.SIGHUP
"""Exit status when the terminal was closed."""


class FrtopApp(OrderedKeys, CompactApp, inherit_bindings=False):
    """Shows one job of a source."""

    TITLE = "frtop"
    CSS_PATH: ClassVar[list[str | PurePath]] = [
        "widgets/tones.tcss",
        "screens/base.tcss",
        "screens/overview.tcss",
        "screens/rank.tcss",
        "screens/ranks.tcss",
        "screens/stacks.tcss",
        "screens/tensors.tcss",
        "screens/ras.tcss",
        "screens/hosts.tcss",
        "screens/group.tcss",
        "screens/waits.tcss",
        "screens/settings.tcss",
        "screens/jobs.tcss",
        "screens/export.tcss",
        "screens/help.tcss",
        "screens/timeline.tcss",
        "screens/queues.tcss",
        "app.tcss",
    ]
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("question_mark", "help", "help", tooltip="all keys and a glossary", id="help"),
        Binding(
            "1", "view('job')", "job", show=False, tooltip="overview of the job", id="view.job"
        ),
        Binding("2", "view('ranks')", "ranks", tooltip="all ranks as a table", id="view.ranks"),
        Binding("3", "view('hosts')", "hosts", tooltip="state of every host", id="view.hosts"),
        Binding(
            "4", "view('stacks')", "stacks", show=False, tooltip="merged stacks", id="view.stacks"
        ),
        Binding("J", "jobs", "jobs", tooltip="list all jobs", id="jobs"),
        Binding(
            "e", "capture", "capture", tooltip="write everything known to a file", id="capture"
        ),
        Binding(
            "E", "export", "export", tooltip="write a report, a trace, stacks, ...", id="export"
        ),
        Binding("Z", "pause", "pause", tooltip="freeze the screen, or resume", id="pause"),
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
        self.paused_frame: Frame | None = None
        """The frame on the screen while paused."""
        self._watched: tuple[int, ...] = ()
        self._shown_hosts: tuple[str, ...] = ()
        self._explained = False
        self._followed: tuple[tuple[int, ...], int | None] = ((), None)
        self._captured: set[JobKey] = set()
        """Jobs that were captured automatically."""
        self._writings: tuple[Writing, ...] = ()
        self._home_loop: asyncio.AbstractEventLoop | None = None

    def get_default_screen(self) -> Screen[None]:
        return Overview(self.marked)

    def on_mount(self) -> None:
        self._home_loop = asyncio.get_running_loop()
        self.source.want_statistics(StatisticsWanted(), whom="verdicts")
        self.tick()
        self.set_interval(TICK_S, self.tick)

    def tick(self) -> None:
        """Takes the newest frame, sends requests, then draws: drawing sends none."""
        if not self.screen_stack:
            return  # the app ends: Textual closes the screens before it stops the timer
        newest = self.source.frame()
        self._send_requests(newest)
        self._announce_files(newest)
        self._draw(newest)

    def _send_requests(self, newest: Frame) -> None:
        """Starts an automatic capture, also while paused, and sends the screen's requests."""
        key = job_to_capture(newest, self._captured) if self.auto_capture else None
        if key is not None:
            self._captured.add(key)
            self._capture(newest, automatic=True)
        screen = self.screen
        if not isinstance(screen, FrameScreen):
            return
        screen.request(self.paused_frame or newest)
        if screen.watched_ranks != self._watched:
            self._watched = screen.watched_ranks
            self.source.watch(self._watched)
        if screen.shown_hosts != self._shown_hosts:
            self._shown_hosts = screen.shown_hosts
            self.source.show_hosts(self._shown_hosts)
        if screen.wants_trace != self._explained:
            self._explained = screen.wants_trace
            self.source.explain(on=self._explained)
        if screen.followed != self._followed:
            self._followed = screen.followed
            self.source.follow_lanes(*self._followed)

    def _draw(self, newest: Frame) -> None:
        """Draws the newest frame, or the paused one, on the visible screen."""
        screen = self.screen
        if not isinstance(screen, FrameScreen):
            return
        badge = ""
        if self.paused_frame is not None:
            delay = duration(max(0, newest.now_ns - self.paused_frame.now_ns) / 1e9)
            badge = f"PAUSED, {delay} behind: Z resumes"
        screen.show(self.paused_frame or newest, badge, self.source.histories())

    def _announce_files(self, frame: Frame) -> None:
        """Notifies of files that are finished, unless a visible pane shows them."""
        if frame.writings == self._writings:
            return
        for writing in frame.writings:
            if writing.state in IN_PROGRESS or writing in self._writings:
                continue
            panes = (Overview, TensorsScreen) if writing.kind == "tensors" else Overview
            if not isinstance(self.screen, panes):
                severity: SeverityLevel = "warning" if writing.state == "failed" else "information"
                text = printable(describe_file(writing))
                self.notify(text, timeout=8, severity=severity, markup=False)
        self._writings = frame.writings

    def leave(self, status: int) -> None:
        """Ends the application from another thread: after a signal, or a closed terminal."""
        driver = self._driver
        if not is_there(0):
            # Textual's input thread would read end-of-file forever.
            exit_event = getattr(driver, "exit_event", None)
            if exit_event is not None:
                exit_event.set()
        if self._home_loop is not None:
            self._home_loop.call_soon_threadsafe(partial(self.exit, return_code=status))

    async def open(self, screen: FrameScreen) -> None:
        """Opens a screen on top of the others and draws it at once."""
        await self.push_screen(screen)
        self.tick()

    async def action_back(self) -> None:
        """Closes the visible screen, unless it is the overview."""
        if len(self.screen_stack) > 1:
            await self.pop_screen()
            self.tick()

    async def action_view(self, name: str) -> None:
        """Opens one of the numbered views on top of the overview."""
        while len(self.screen_stack) > 1:
            await self.pop_screen()
        if name in VIEWS:
            await self.push_screen(VIEWS[name](self.marked))
        self.tick()

    async def action_help(self) -> None:
        """Opens help for the visible screen, or closes it."""
        screen = self.screen
        if isinstance(screen, HelpScreen):
            await self.pop_screen()
        elif isinstance(screen, FrameScreen):
            keys = key_rows(screen.active_bindings.values(), screen.why_unavailable)
            await self.open(HelpScreen(self.marked, keys, screen.crumb))

    async def on_open_rank(self, event: OpenRank) -> None:
        await self.open(RankScreen(self.marked, event.rank))

    async def on_open_ranks(self, event: OpenRanks) -> None:
        await self.open(RanksScreen(self.marked, event.filter_text, editing=event.editing))

    async def on_open_group(self, event: OpenGroup) -> None:
        await self.open(GroupScreen(self.marked, event.keys))

    async def on_open_waits(self) -> None:
        await self.open(WaitsScreen(self.marked))

    async def on_open_settings(self) -> None:
        await self.open(SettingsScreen(self.marked))

    async def on_open_timeline(self, event: OpenTimeline) -> None:
        await self.open(TimelineScreen(self.marked, event.rank, event.group))

    async def on_open_queues(self, event: OpenQueues) -> None:
        await self.open(QueuesScreen(self.marked, event.rank))

    async def on_open_stacks(self) -> None:
        await self.open(StacksScreen(self.marked))

    async def on_open_tensors(self, event: OpenTensors) -> None:
        await self.open(TensorsScreen(self.marked, event.rank, event.instead_of))

    async def on_open_ras(self, event: OpenRas) -> None:
        await self.open(RasScreen(self.marked, event.rank))

    def on_ask_ras(self, event: AskRas) -> None:
        self.source.ask_ras(event.rank, look=event.look)

    async def action_jobs(self) -> None:
        """Opens the list of jobs."""
        if not isinstance(self.screen, JobsScreen):
            await self.open(JobsScreen(self.marked))

    async def on_choose_job(self, event: ChooseJob) -> None:
        """Shows another job's overview; marks belong to the ranks of the old one."""
        self.marked.clear()
        self.source.choose(job_key(event.job))
        await self.action_view("job")

    def on_inspect_rank(self, event: InspectRank) -> None:
        self.source.inspect(event.rank)

    def on_save_tensors(self, event: SaveTensors) -> None:
        self.source.save(event.rank, event.sequence, event.path)

    def action_capture(self) -> None:
        """Writes everything known to a file in the current folder."""
        screen = self.screen
        if isinstance(screen, FrameScreen) and screen.check_available("capture"):
            self._capture(self.source.frame())

    def _capture(self, frame: Frame, *, automatic: bool = False) -> None:
        try:
            path = default_path(frame, frame.wall_ns)
        except OSError as error:  # the current folder was deleted
            text = f"Cannot capture in this folder ({error.strerror}); start frtop in another one."
            self.notify(text, markup=False)
        else:
            self.source.capture(path, automatic=automatic)

    async def action_export(self) -> None:
        """Opens the list of formats."""
        screen = self.screen
        if not isinstance(screen, FrameScreen) or isinstance(screen, ExportScreen):
            return
        if screen.check_available("export"):
            await self.open(ExportScreen(self.marked))

    async def on_export_job(self, event: ExportJob) -> None:
        self.source.export(event.path, event.name)
        await self.action_back()

    def on_take_stacks(self, event: TakeStacks) -> None:
        self.source.dump(event.ranks)

    def on_take_native_stacks(self, event: TakeNativeStacks) -> None:
        self.source.take_native(event.rank)

    def action_pause(self) -> None:
        """Freezes the screen; once more resumes with the newest frame."""
        if isinstance(self.screen, FrameScreen) and not self.screen.check_available("pause"):
            return
        self.paused_frame = self.source.frame() if self.paused_frame is None else None
        self.tick()

    def action_copy(self) -> None:
        """Copies the verdict to the user's clipboard, through the terminal (OSC 52)."""
        frame = self.paused_frame or self.source.frame()
        if not frame.verdicts:
            self.notify("Nothing to copy: there is no verdict.", timeout=4)
            return
        self.copy_to_clipboard("\n".join(map(printable, verdict_text(frame))))
        self.notify("Verdict copied to your terminal's clipboard.", timeout=4)

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """The palette lists the actions of our keys, and none of Textual's own."""
        for _, binding, enabled, _ in screen.active_bindings.values():
            if enabled and binding.id and binding.show:
                run = partial(self.run_action, binding.action, screen)
                yield SystemCommand(binding.description, binding.tooltip, run)


def run_app(source: Source, title: str = "frtop", *, auto_capture: bool = True) -> int:
    """Shows a source until the user quits or the terminal is closed.

    Args:
        source: closed on return.
        title: of the terminal's window.
        auto_capture: write every confirmed hang to the current folder, once per job.

    Returns:
        The exit status. Textual's threads may still run: end the process with `terminal.end`.
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

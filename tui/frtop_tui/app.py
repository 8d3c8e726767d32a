"""The Textual application: connects a source to the screens.

On every tick it takes the newest frame from the source, sends requests, and gives the frame to the
visible screen. A slow terminal delays only itself; a pause is one remembered frame.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import PurePath
from typing import ClassVar, Final

from rich.cells import cached_cell_len
from textual._styles_cache import StylesCache
from textual.app import SystemCommand
from textual.binding import BindingType
from textual.notifications import SeverityLevel
from textual.screen import Screen

from frtop_probe.garbage import Collector, collect_rarely
from frtop_tui import foreground
from frtop_tui.appearance import theme_for
from frtop_tui.connect.followers import Order
from frtop_tui.connect.source import Source
from frtop_tui.diagnosis.model import Frame
from frtop_tui.files.output_path import default_path
from frtop_tui.job.model import Writing
from frtop_tui.job.naming import JobKey, job_key, printable
from frtop_tui.screens.base import FrameScreen, Preferences
from frtop_tui.screens.contributed import of_features
from frtop_tui.screens.copying import CopyingApp
from frtop_tui.screens.export import ExportScreen
from frtop_tui.screens.failure import ShortFailures
from frtop_tui.screens.help import HelpScreen, key_rows
from frtop_tui.screens.jobs import JobsScreen
from frtop_tui.screens.keyboard import OrderedKeys
from frtop_tui.screens.keys_everywhere import KEYS
from frtop_tui.screens.messages import (
    CaptureJob,
    ChooseJob,
    Do,
    ExportJob,
)
from frtop_tui.screens.opening import OpeningApp
from frtop_tui.screens.overview import Overview
from frtop_tui.screens.painting import CompactApp
from frtop_tui.screens.themes import ThemedApp
from frtop_tui.statistics.wanted import StatisticsWanted
from frtop_tui.terminal import TerminalGone, is_there, restart_when_continued, watched
from frtop_tui.text.alarm import job_to_capture
from frtop_tui.widgets.file_status import IN_PROGRESS, describe_file
from frtop_tui.widgets.lines import TONE_CLASSES

TICK_S: Final = 0.25
ASKED_S: Final = 10.0
"""A second press quits as long as the question is shown."""
LOST: Final = 128 + signal.SIGHUP
"""Exit status when the terminal was closed."""


class FrtopApp(
    OpeningApp,
    CopyingApp,
    OrderedKeys,
    CompactApp,
    ThemedApp,
    ShortFailures,
    inherit_bindings=False,
):
    """Shows one job of a source."""

    TITLE = "frtop"
    COMPONENT_CLASSES: ClassVar[set[str]] = TONE_CLASSES
    CSS_PATH: ClassVar[list[str | PurePath]] = [
        "widgets/tones.tcss",
        "screens/base.tcss",
        "screens/overview.tcss",
        "screens/rank.tcss",
        "screens/ranks.tcss",
        "screens/stacks.tcss",
        "screens/hosts.tcss",
        "screens/group.tcss",
        "screens/waits.tcss",
        "screens/settings.tcss",
        "screens/jobs.tcss",
        "screens/export.tcss",
        "screens/help.tcss",
        *(f"features/{style}" for one in of_features() for style in one.styles),
        "screens/command_line.tcss",
        "app.tcss",
    ]
    BINDINGS: ClassVar[list[BindingType]] = KEYS

    def __init__(
        self,
        source: Source,
        title: str = "frtop",
        *,
        auto_capture: bool = True,
        theme: str = "dark",
        preferences: Preferences | None = None,
        ends: str = "",
    ) -> None:
        super().__init__()
        self.preferences = preferences or Preferences()
        self.use_theme(theme)
        self.source = source
        self.auto_capture = auto_capture
        self.ends = ends
        """What ends with frtop, such as the demo's job; "": nothing."""
        self._asked_to_quit_s = -ASKED_S
        self.title = title
        self._watched: tuple[int, ...] = ()
        self._shown_hosts: tuple[str, ...] = ()
        self._explained = False
        self._orders: Mapping[type[Order], Order] = {}
        self._window_s: float | None = None
        self._captured: set[JobKey] = set()
        """Jobs that have been captured automatically."""
        self._writings: tuple[Writing, ...] = ()
        self._garbage = Collector(_forget_what_was_shown)
        self._home_loop: asyncio.AbstractEventLoop | None = None

    def notify(
        self,
        message: str,
        *,
        title: str = "",
        severity: SeverityLevel = "information",
        timeout: float | None = None,
        markup: bool = False,
    ) -> None:
        """Like Textual's, but safe for any text: no markup, no control characters."""
        del markup
        shown = "\n".join(map(printable, message.split("\n")))
        super().notify(shown, title=title, severity=severity, timeout=timeout, markup=False)

    def get_default_screen(self) -> Screen[None]:
        return Overview(self.marked)

    def on_mount(self) -> None:
        self._home_loop = loop = asyncio.get_running_loop()
        if self._driver is not None:
            suspend = self._driver.suspend_application_mode
            restart_when_continued(suspend, partial(loop.call_soon_threadsafe, self.action_redraw))
        self.source.want_statistics(StatisticsWanted(), whom="verdicts")
        self.visits.visit(self.path)
        self.tick()
        self.set_interval(TICK_S, self.tick)

    def tick(self) -> None:
        """Takes the newest frame, sends requests, then draws: drawing sends none."""
        if not self.screen_stack:
            return  # at the end Textual closes the screens before it stops the timer
        newest = self.source.frame()
        self.received.take(newest)
        self._send_requests(newest)
        self._announce_files(newest)
        if isinstance(self.screen, FrameScreen):
            self._draw(newest, self.screen)
        foreground.end_if_late()
        self._garbage.tick(self.idle_s)

    def draw_on(self, screen: FrameScreen) -> None:
        self._draw(self.source.frame(), screen)

    def _send_requests(self, newest: Frame) -> None:
        """Starts an automatic capture, even if paused, and sends the screen's requests."""
        key = job_to_capture(newest, self._captured) if self.auto_capture else None
        if key is not None:
            known = (newest.job, *newest.other_jobs)
            self._captured &= {job_key(one) for one in known if one is not None}
            self._captured.add(key)
            self._capture(newest, automatic=True)
        screen = self.screen
        if not isinstance(screen, FrameScreen) or self.in_past:
            return
        screen.request(self.received.shown or newest)
        if screen.watched_ranks != self._watched:
            self._watched = screen.watched_ranks
            self.source.watch(self._watched)
        if screen.shown_hosts != self._shown_hosts:
            self._shown_hosts = screen.shown_hosts
            self.source.show_hosts(self._shown_hosts)
        if screen.wants_trace != self._explained:
            self._explained = screen.wants_trace
            self.source.explain(on=self._explained)
        orders, before = screen.orders, self._orders
        self._orders = orders
        for kind in {**before, **orders}:
            if orders.get(kind) != before.get(kind):
                self.source.do(orders.get(kind, kind()))
        if screen.wanted_window != self._window_s:
            self._window_s = screen.wanted_window
            seconds = self._window_s
            wanted = None if seconds is None else StatisticsWanted(seconds, calls=True)
            self.source.want_statistics(wanted, whom="screen")

    def _draw(self, newest: Frame, screen: FrameScreen) -> None:
        """Draws the newest frame, or the earlier one on show."""
        frame, badge, past = self.shown(newest)
        screen.show(frame, badge, self.source.news(), past=past)

    def _announce_files(self, frame: Frame) -> None:
        """Notifies the user of finished files, unless a visible pane shows them."""
        if frame.writings == self._writings:
            return
        for writing in frame.writings:
            if writing.state in IN_PROGRESS or writing in self._writings:
                continue
            screen = self.screen
            if not (isinstance(screen, FrameScreen) and screen.shows_files(writing.kind)):
                severity: SeverityLevel = "warning" if writing.state == "failed" else "information"
                text = describe_file(writing)
                self.notify(text, timeout=8, severity=severity)
        self._writings = frame.writings

    async def action_quit(self) -> None:
        """Leaves; where something ends with frtop, the first press only says so."""
        now_s = time.monotonic()
        writings = self.source.frame().writings
        unfinished = [
            f"the writing of the {one.kind}" for one in writings if one.state in IN_PROGRESS
        ]
        ending = [*([self.ends] if self.ends else []), *dict.fromkeys(unfinished)]
        if not ending or now_s - self._asked_to_quit_s < ASKED_S:
            self.exit()
            return
        self._asked_to_quit_s = now_s
        what = " and ".join(ending)
        text = f"{what[0].upper()}{what[1:]} end{'s' * (len(ending) == 1)} with frtop."
        self.notify(f"{text} Press again to quit.", timeout=ASKED_S)

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

    async def action_help(self) -> None:
        """Opens help for the visible screen, or closes it."""
        screen = self.screen
        if isinstance(screen, HelpScreen):
            await self.pop_screen()
        elif isinstance(screen, FrameScreen):
            keys = key_rows(screen.active_bindings.values(), screen.why_unavailable)
            await self.open(HelpScreen(self.marked, keys, screen.crumb))

    async def action_jobs(self) -> None:
        """Opens the list of jobs."""
        if not isinstance(self.screen, JobsScreen):
            await self.open(JobsScreen(self.marked))

    async def on_choose_job(self, event: ChooseJob) -> None:
        """Shows another job's overview; marks belong to the ranks of the old one."""
        self.marked.clear()
        self.action_live()
        await self.forget_visits()
        self.source.choose(job_key(event.job))
        await self.action_view("job")

    def on_do(self, event: Do) -> None:
        self.source.do(event.request, tuple(event.ranks))

    def action_capture(self) -> None:
        """Writes everything known to a file in the current folder."""
        screen = self.screen
        if isinstance(screen, FrameScreen) and screen.check_available("capture"):
            self._capture(self.source.frame())

    def on_capture_job(self, event: CaptureJob) -> None:
        self.source.capture(event.path)

    def _capture(self, frame: Frame, *, automatic: bool = False) -> None:
        try:
            path = default_path(frame, frame.wall_ns, folder=self.preferences.folder)
        except OSError as error:  # the current folder was deleted
            text = f"Cannot capture in this folder ({error.strerror}); start frtop in another one."
            self.notify(text)
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
        if isinstance(self.screen, ExportScreen):
            await self.action_back()

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """The palette lists the actions of our keys, but none of Textual's own."""
        for _, binding, enabled, _ in screen.active_bindings.values():
            if enabled and binding.id and binding.show:
                run = partial(self.run_action, binding.action, screen)
                yield SystemCommand(binding.description, binding.tooltip, run)


def _forget_what_was_shown() -> None:
    """Clears caches of Textual and Rich: what 1,024 widgets showed, how wide 4,096 texts are."""
    StylesCache.get_inner_outer.cache_clear()
    cached_cell_len.cache_clear()


def run_app(
    source: Source,
    title: str = "frtop",
    *,
    auto_capture: bool = True,
    theme: str = "auto",
    preferences: Preferences | None = None,
    ends: str = "",
) -> int:
    """Shows a source until the user quits or the terminal is closed; then closes the source.

    `auto_capture` writes every confirmed hang to a file, once per job; quitting asks first where
    something `ends` with frtop. Returns the exit status;
    Textual's threads may still run: end the process with `terminal.end`.
    """
    collect_rarely()
    app = FrtopApp(
        source,
        title,
        auto_capture=auto_capture,
        theme=theme_for(theme, os.environ),
        preferences=preferences,
        ends=ends,
    )
    try:
        with watched(app.leave):
            app.run()
    except TerminalGone:
        return LOST
    finally:
        source.close()
    return app.return_code or 0

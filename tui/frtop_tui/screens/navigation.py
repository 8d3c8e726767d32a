"""Opens and closes screens: on top of each other, back, forward, and by commands."""

from __future__ import annotations

from functools import partial
from itertools import takewhile
from typing import Final

from textual.message import Message

from frtop_tui.job.naming import printable
from frtop_tui.screens.base import FrameScreen, Preferences
from frtop_tui.screens.command_line import CommandLine
from frtop_tui.screens.commands import COMMANDS, view_of
from frtop_tui.screens.completion import (
    Action,
    CommandError,
    CommandScope,
    complete,
    find,
    interpret,
)
from frtop_tui.screens.contributed import FeatureApp
from frtop_tui.screens.visits import Visits

MOST_FORMER: Final = 50
"""Earlier commands that up and down go through."""


class NavigatedApp(FeatureApp, inherit_bindings=False):
    """An application that remembers visited screens, and runs commands."""

    def __init__(self) -> None:
        super().__init__()
        self.marked: set[int] = set()
        self.preferences = Preferences()
        self.visits: Visits[FrameScreen] = Visits()
        self._installed = 0
        self._former: list[str] = []

    def tick(self) -> None:
        """Draws the visible screen."""
        raise NotImplementedError

    def draw_on(self, screen: FrameScreen) -> None:
        """Draws what is shown now on a screen, which need not be open yet."""
        raise NotImplementedError

    @property
    def path(self) -> list[FrameScreen]:
        """The open screens that back and forward lead to, the overview first."""
        return [s for s in self.screen_stack if isinstance(s, FrameScreen) and s.is_visited]

    async def _visited(self) -> None:
        """Remembers the open screens: they keep their cursors after they are closed."""
        for screen in self.path[1:]:
            if not self.is_screen_installed(screen):
                self._installed += 1
                self.install_screen(screen, f"visited-{self._installed}")
        await self._discard(self.visits.visit(self.path))
        self.tick()

    async def _discard(self, screens: list[FrameScreen]) -> None:
        for screen in screens:
            if self.is_screen_installed(screen):
                self.uninstall_screen(screen)
            if screen not in self.screen_stack and screen.is_attached:
                await screen.remove()

    async def open(self, screen: FrameScreen) -> None:
        """Opens a screen on top of the others and draws it at once."""
        self._prepare(screen)
        await self.push_screen(screen)
        await self._visited()

    def _prepare(self, screen: FrameScreen) -> None:
        """Gives a new screen what it shows, so that its first picture is not an empty one."""
        before = self.screen
        screen.about = before.subject if isinstance(before, FrameScreen) else None
        screen.preferences = self.preferences
        self.draw_on(screen)

    async def action_back(self) -> None:
        """Closes the visible screen, unless it is the overview."""
        if len(self.screen_stack) > 1:
            await self.pop_screen()
            await self._visited()

    async def action_back_or_quit(self) -> None:
        """Does what `q` does on the visible screen."""
        await self.run_action("quit" if len(self.screen_stack) == 1 else "back")

    async def action_view(self, name: str) -> None:
        """Opens one of the views on top of the overview."""
        view = view_of(name)
        if view.screen is type(self.screen_stack[0]):
            await self._close_down_to(1)
        else:
            screen = view.screen(self.marked)
            self._prepare(screen)
            await self._close_down_to(2)
            show = self.push_screen if len(self.screen_stack) == 1 else self.switch_screen
            await show(screen)
        await self._visited()

    async def _close_down_to(self, count: int) -> None:
        while len(self.screen_stack) > count:
            await self.pop_screen()

    async def action_history(self, by: int) -> None:
        """Goes back or forward through visited screens."""
        path = self.visits.step(by)
        if path is None:
            where = "before" if by < 0 else "after"
            self.notify(f"No screen was visited {where} this one.", timeout=4)
            return
        stack = self.screen_stack
        common = len(
            list(takewhile(lambda pair: pair[0] is pair[1], zip(stack, path, strict=False)))
        )
        await self._close_down_to(common)
        for screen in path[common:]:
            await self.push_screen(screen)
        self.tick()

    async def forget_visits(self) -> None:
        """Closes all screens but the overview: another job is shown."""
        await self._close_down_to(1)
        await self._discard(self.visits.forget()[1:])
        self.visits.visit(self.path)

    @property
    def situation(self) -> CommandScope | None:
        """What commands can read; None before the first frame."""
        screen = self.screen
        frame = screen.frame if isinstance(screen, FrameScreen) else None
        return None if frame is None else CommandScope(frame, self.marked, self.preferences)

    async def action_command(self, begin: str = "") -> None:
        """Opens the command line above the keys, with `begin` in it."""
        screen, situation = self.screen, self.situation
        if situation is None or screen.query(CommandLine):
            return
        completer = partial(complete, commands=COMMANDS, situation=situation)
        line = CommandLine(completer, self._former, begin)
        await screen.mount(line, before="#keys")
        # `focus()` acts some messages later; the next key must reach the field.
        screen.set_focus(line.query_one("#command"))

    async def _close_line(self) -> None:
        screen = self.screen
        await screen.query(CommandLine).remove()
        if isinstance(screen, FrameScreen):
            screen.set_focus(None)
            screen.restore_focus()

    async def on_command_line_left(self) -> None:
        await self._close_line()

    async def on_command_line_entered(self, event: CommandLine.Entered) -> None:
        """Runs a command; a wrong line stays, with the reason."""
        screen, situation, text = self.screen, self.situation, event.text.strip()
        if situation is None or not isinstance(screen, FrameScreen) or not text:
            await self._close_line()
            return
        self._former = [*(line for line in self._former if line != text), text][-MOST_FORMER:]
        try:
            command = find(text.partition(" ")[0], COMMANDS)
            reason = screen.why_unavailable(command.needs) if command.needs else ""
            if reason:
                raise CommandError(reason)
            outcome = interpret(text, COMMANDS, situation)
        except CommandError as error:
            screen.query_one(CommandLine).refuse(printable(str(error)))
            return
        await self._close_line()
        if isinstance(outcome, Message):
            screen.post_message(outcome)
        elif isinstance(outcome, Action):
            await self.run_action(outcome.name)
        else:
            await self.open(outcome)

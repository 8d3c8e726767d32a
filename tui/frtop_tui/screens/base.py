"""What all screens share: a frame comes down by attribute, wishes go up as messages."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.css.query import NoMatches
from textual.message import Message
from textual.screen import Screen
from textual.widgets import Static

from frtop_probe import wire
from frtop_tui.diagnosis.judged import Frame
from frtop_tui.job.naming import printable
from frtop_tui.screens.barred import barred
from frtop_tui.widgets.headline import Headline
from frtop_tui.widgets.keyline import KeyLine
from frtop_tui.widgets.spans import Line, plain

SMALLEST = (60, 15)
"""Columns and rows below which the essential words do not fit."""


class OpenRank(Message):
    """Somebody wants to look at one rank."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.rank = rank


class OpenRanks(Message):
    """Somebody wants the table of ranks, filtered."""

    def __init__(self, filter_text: str = "", *, editing: bool = False) -> None:
        super().__init__()
        self.filter_text = filter_text
        self.editing = editing


class OpenStacks(Message):
    """Somebody wants the merged stacks."""


class TakeStacks(Message):
    """Somebody wants the stacks of these ranks taken now."""

    def __init__(self, ranks: Iterable[int]) -> None:
        super().__init__()
        self.ranks = tuple(ranks)


class OpenTensors(OpenRank):
    """Somebody wants to look into the tensors of one rank, `instead` of those of another."""

    def __init__(self, rank: int, instead: int | None = None) -> None:
        super().__init__(rank)
        self.instead = instead if instead != rank else None


class InspectRank(OpenRank):
    """Somebody wants a rank asked what is in its tensors."""


class SaveTensors(Message):
    """Somebody wants the tensors of one pending op written."""

    def __init__(self, rank: int, sequence: int, path: Path) -> None:
        super().__init__()
        self.rank, self.sequence, self.path = rank, sequence, path


class ChooseJob(Message):
    """Somebody wants another job on the screen."""

    def __init__(self, job: wire.Job) -> None:
        super().__init__()
        self.job = job


class FrameScreen(Screen[None]):
    """A screen that shows frames. Subclasses say what they draw and what they watch."""

    HORIZONTAL_BREAKPOINTS = [  # noqa: RUF012 - Textual declares it on the instance
        (0, "-narrow"),
        (110, "-wide"),
    ]
    VERTICAL_BREAKPOINTS = [  # noqa: RUF012 - the same
        (0, "-tiny"),
        (20, "-short"),
        (36, "-tall"),
    ]
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab", "app.focus_next", "next pane", show=False, id="pane.next"),
        Binding("shift+tab", "app.focus_previous", "previous pane", show=False, id="pane.previous"),
    ]
    crumb: str = ""
    """What this screen is called in the path at its top."""

    def __init__(self, marked: set[int]) -> None:
        super().__init__()
        self.marked = marked
        self.frame: Frame | None = None
        self.badge = ""

    def compose(self) -> ComposeResult:
        yield Static(id="too-small", markup=False)
        yield Headline()
        yield from self.panes()
        yield KeyLine()

    def panes(self) -> ComposeResult:
        """What stands between the top lines and the keys."""
        raise NotImplementedError

    def draw(self, frame: Frame) -> None:
        """Gives the frame to the panes."""
        raise NotImplementedError

    @property
    def watches(self) -> tuple[int, ...]:
        """Ranks whose details this screen shows."""
        return ()

    @property
    def host(self) -> str:
        """Where the rank is that this screen is about, if it is about one."""
        return ""

    def barred(self, action: str) -> str:
        """Why this action can do nothing now, "" when it can."""
        return "" if self.frame is None else barred(action, self.frame, self.host)

    def may(self, action: str) -> bool:
        """Whether an action can do something; if not, the user is told why."""
        reason = self.barred(action)
        if reason:
            self.app.clear_notifications()  # pressed again, it is said once
            self.app.notify(printable(reason), timeout=8, markup=False)
        return not reason

    def crumbs(self) -> Line:
        """The path to here; empty where the job's own line stands instead."""
        names = [s.crumb for s in self.app.screen_stack if isinstance(s, FrameScreen) and s.crumb]
        return (*plain(" > ".join(names[:-1]) + " > ", "dim"), *plain(names[-1], "strong"))

    def show(self, frame: Frame, badge: str = "") -> None:
        """Draws a frame; the one that is on the screen already costs nothing."""
        if frame is self.frame and badge == self.badge:
            return
        self.frame, self.badge = frame, badge
        self.draw_all()

    def draw_all(self) -> None:
        """Draws the present frame again, for example after a key changed the view."""
        if self.frame is None or not self.query(Headline):
            return
        try:
            self.draw(self.frame)
        except NoMatches:
            # Panes inside containers come a moment after the screen: with the next frame.
            self.frame = None
            return
        headline = self.query_one(Headline)
        headline.frame, headline.crumbs = self.frame, self.crumbs()
        headline.badge = plain(f" {self.badge} ", "key") if self.badge else ()
        headline.set_class(self.frame.recorded is not None, "-recorded")
        headline.redraw()
        self.query_one(KeyLine).bar(self.barred)

    def on_mount(self) -> None:
        self.draw_all()

    def on_resize(self, event: events.Resize) -> None:
        width, height = event.size
        small = width < SMALLEST[0] or height < SMALLEST[1]
        if small:
            self.query_one("#too-small", Static).update(
                f"frtop needs a terminal of {SMALLEST[0]}x{SMALLEST[1]};"
                f" this one is {width}x{height}. Enlarge it, or press q to quit."
            )
        self.set_class(small, "-small")
        # What has just come into sight has not been drawn yet.
        self.call_after_refresh(self.draw_all)
        if not small and self.focused is None and self.AUTO_FOCUS:
            self.call_after_refresh(self.regain_focus)

    def regain_focus(self) -> None:
        """Panes that were hidden have lost the focus; keys would go nowhere."""
        if self.focused is None and isinstance(self.AUTO_FOCUS, str):
            self.query(self.AUTO_FOCUS).first().focus()

"""The base classes of all screens: frames go down, messages go up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.css.query import NoMatches
from textual.screen import Screen
from textual.widgets import Static

from frtop_tui.connect.followers import Order
from frtop_tui.diagnosis.model import Frame, JudgedRank
from frtop_tui.job.groups import Identifier
from frtop_tui.screens.availability import action_name, why_unavailable
from frtop_tui.screens.messages import OpenView
from frtop_tui.widgets.headline import Headline
from frtop_tui.widgets.keyline import KeyLine
from frtop_tui.widgets.spans import Line, plain

SMALLEST = (60, 15)
"""Columns and rows of the smallest terminal that frtop draws on."""
BACK: Final = Binding("escape,q", "app.back", "back", tooltip="previous screen", id="back")
WAITS: Final = Binding("w", "open_view('waits')", "waits", tooltip="who waits for whom", id="waits")
STACKS: Final = Binding(
    "b", "open_view('stacks')", "stacks", tooltip="take and merge stacks", id="stacks.take"
)
"""What several screens have."""


@dataclass(frozen=True, slots=True)
class Preferences:
    """The user's settings."""

    window_s: float = 60.0
    """The window of statistics; 0: as far as rings reach."""
    folder: Path | None = None
    """Where files go; None: the current folder."""


DEFAULTS: Final = Preferences()


class FrameScreen(Screen[None]):
    """A screen that draws frames, and posts the requests that they need."""

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
    """The screen's name in the path on the first line."""
    wants_trace: bool = False
    """Whether its frames carry the wait-for graph."""
    is_visited: ClassVar[bool] = True
    """Whether back and forward lead to it; they skip dialogs over another screen."""

    def __init__(self, marked: set[int]) -> None:
        super().__init__()
        self.marked = marked
        self.frame: Frame | None = None
        self.badge = ""
        self.news: Mapping[str, Any] = {}
        """The results of orders, by feature."""
        self.preferences = DEFAULTS
        self.past = ""
        """How far back the frame is; "" if it is live."""
        self.about: int | None = None
        """The `subject` of the screen from which this one was opened."""

    def compose(self) -> ComposeResult:
        yield Static(id="too-small", markup=False)
        yield Headline()
        yield from self.panes()
        yield KeyLine()

    def panes(self) -> ComposeResult:
        """The widgets between the headline and the keys."""
        raise NotImplementedError

    def request(self, frame: Frame) -> None:
        """Posts the requests that `frame` needs, on ticks and after keys; drawing never asks."""

    def draw(self, frame: Frame) -> None:
        """Gives the frame to the panes, and sends nothing."""
        raise NotImplementedError

    def take_news(self) -> None:
        """Takes what it shows from `news`, before it is drawn."""

    @property
    def watched_ranks(self) -> tuple[int, ...]:
        """Ranks whose ops, stacks and process the source keeps up to date for this screen."""
        return ()

    @property
    def shown_hosts(self) -> tuple[str, ...]:
        """Hosts whose gauge histories the source keeps up to date for this screen."""
        return ()

    @property
    def orders(self) -> Mapping[type[Order], Order]:
        """What the source follows while this screen is visible."""
        return {}

    @property
    def wanted_window(self) -> float | None:
        """The window, in seconds, of the statistics that this screen needs; None: it needs none."""
        return None

    @property
    def why_no_answer(self) -> str:
        """Why no answer will be shown; "" if one may arrive."""
        if self.past:
            return f"showing {self.past} ago, and asking nothing: Z returns to live"
        return "paused: answers are shown when Z resumes" if self.badge else ""

    @property
    def host(self) -> str:
        """The host of the screen's rank; empty for screens about several ranks."""
        return ""

    @property
    def target(self) -> JudgedRank | None:
        """The screen's rank; None for screens about several ranks."""
        return None

    @property
    def subject(self) -> int | None:
        """The rank that the user looks at: the screen's, or the one under its cursor."""
        return self.target.rank if self.target is not None else None

    @property
    def group_of_interest(self) -> Identifier | None:
        """The group in which the screen's rank waits or is late, else its largest one."""
        return None

    def action_open_view(self, name: str) -> None:
        self.post_message(OpenView(name))

    def shows_files(self, kind: str) -> bool:  # noqa: ARG002
        """Whether a pane shows the progress of files of this kind, such as `tensors`."""
        return False

    @property
    def of_interest(self) -> tuple[int, ...]:
        """Ranks to start the cursor on: the subject of the screen below, then the culprits."""
        verdicts = self.frame.verdicts if self.frame is not None else ()
        first = [rank for one in verdicts for rank in one.first_ranks]
        about = () if self.about is None else (self.about,)
        return tuple(dict.fromkeys((*about, *first)))

    def why_unavailable(self, action: str) -> str:
        """Why this action can do nothing now; "" if it can."""
        if self.frame is None:
            return ""
        return why_unavailable(action, self.frame, self.host, self.target, past=self.past)

    def check_available(self, action: str) -> bool:
        """Whether an action can do something now; if not, tells the user why."""
        reason = self.why_unavailable(action)
        if reason:
            self.app.clear_notifications()  # shown once, however often the key is pressed
            self.app.notify(reason, timeout=8)
        return not reason

    def crumbs(self) -> Line:
        """The path of open screens; empty if the job's own line is shown instead."""
        names = [s.crumb for s in self.app.screen_stack if isinstance(s, FrameScreen) and s.crumb]
        return (*plain(" > ".join(names[:-1]) + " > ", "dim"), *plain(names[-1], "strong"))

    def show(
        self,
        frame: Frame,
        badge: str = "",
        news: Mapping[str, Any] | None = None,
        *,
        past: str = "",
    ) -> None:
        """Draws a frame; one that is already on the screen costs nothing.

        `badge` are words for the headline; `news` None: as before; `past`: how far back it is.
        """
        news = news if news is not None else self.news
        same = frame is self.frame and news is self.news
        if same and (badge, past) == (self.badge, self.past):
            return
        self.frame, self.badge, self.past, self.news = frame, badge, past, news
        if news:
            self.take_news()
        self.draw_all()

    def draw_all(self) -> None:
        """Draws the current frame again, such as after a key."""
        if self.frame is None or not self.query(Headline):
            return
        try:
            self.draw(self.frame)
        except NoMatches:
            # Panes inside containers are mounted after the screen: the next frame is drawn.
            self.frame = None
            return
        headline = self.query_one(Headline)
        headline.frame, headline.crumbs = self.frame, self.crumbs()
        headline.badge = plain(f" {self.badge} ", "key") if self.badge else ()
        headline.set_class(self.frame.recorded is not None, "-recorded")
        headline.redraw()
        self.query_one(KeyLine).update_availability(self.why_unavailable)

    def on_mount(self) -> None:
        self.draw_all()

    def on_screen_resume(self) -> None:
        # Open screens have changed, and a late refresh may have drawn it while it was closed.
        self.draw_all()

    def on_resize(self, event: events.Resize) -> None:
        width, height = event.size
        small = width < SMALLEST[0] or height < SMALLEST[1]
        if small:
            self.query_one("#too-small", Static).update(
                f"frtop needs a terminal of at least {SMALLEST[0]}x{SMALLEST[1]};"
                f" this one is {width}x{height}. Enlarge it, or press Q to quit."
            )
        self.set_class(small, "-small")
        # Panes that became visible have not been drawn yet.
        self.call_after_refresh(self.draw_all)
        if not small and self.focused is None and self.AUTO_FOCUS:
            self.call_after_refresh(self.restore_focus)

    def restore_focus(self) -> None:
        """Focuses the main pane: a hidden pane loses the focus, and keys would get lost."""
        if self.focused is None and isinstance(self.AUTO_FOCUS, str):
            self.query(self.AUTO_FOCUS).first().focus()


class OneRankScreen(FrameScreen):
    """A screen about one rank, which it keeps watched; `n` and `p` go to other ranks."""

    def __init__(self, marked: set[int], rank: int) -> None:
        super().__init__(marked)
        self.rank = rank
        self.known: JudgedRank | None = None
        """The rank's last known state, even after it has left the frame."""

    @property
    def watched_ranks(self) -> tuple[int, ...]:
        return (self.rank,)

    @property
    def host(self) -> str:
        return self.known.host if self.known is not None else ""

    @property
    def target(self) -> JudgedRank | None:
        return self.known

    def why_unavailable(self, action: str) -> str:
        frame = self.frame
        if frame is not None and action_name(action) == "neighbour" and len(frame.ranks) < 2:
            return "No other rank is known."
        return super().why_unavailable(action)

    def action_neighbour(self, by: int) -> None:
        """Goes to the next or previous rank; the first follows the last."""
        if self.frame is None or not self.check_available("neighbour"):
            return
        ranks = sorted(self.frame.ranks)
        index = ranks.index(self.rank) if self.rank in self.frame.ranks else 0
        self.rank = ranks[(index + by) % len(ranks)]
        self.known = self.frame.ranks[self.rank]
        self.reset()
        self.request(self.frame)
        self.draw_all()

    def reset(self) -> None:
        """Drops what belongs to the previous rank."""

"""torch's profiler in some ranks: the question with its cost, then progress and result."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import ClassVar, Final

from msgspec.structs import replace
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from frtop_tui.diagnosis.model import Frame
from frtop_tui.features.profile.allocation_words import allocation_lines
from frtop_tui.features.profile.model import (
    OPTION_COSTS,
    ProfileOptions,
    ProfileOrder,
    ProfileProgress,
    RankProfile,
    Withdrawal,
    cost_lines,
    length_text,
)
from frtop_tui.features.profile.words import (
    OPTION_NAMES,
    progress_text,
    rank_text,
    result_lines,
    standing_text,
)
from frtop_tui.files.output_path import default_path
from frtop_tui.job.naming import folded
from frtop_tui.job.units import counted
from frtop_tui.screens.availability import action_name
from frtop_tui.screens.base import FrameScreen
from frtop_tui.screens.messages import Do
from frtop_tui.widgets.file_status import short_path
from frtop_tui.widgets.lines import LineView
from frtop_tui.widgets.spans import Line, clip, plain, wrap

STEPS: Final = (1, 2, 3, 5, 10, 20, 50, 100)
SECONDS: Final = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
SUFFIX: Final = "-profile.json.gz"
_KEYS = (("d", "shapes"), ("b", "stacks"), ("A", "memory"), ("X", "execution"))
_TONES = {"failed": "bad", "done": "good", "running": "moving", "fetching": "strong"}


class ProfileScreen(FrameScreen):
    """Orders nothing until `enter`; `escape` withdraws the order, `s` saves what is there."""

    AUTO_FOCUS = "#profile"
    is_visited = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "withdraw_or_back", "back", tooltip="withdraws an order first",
                id="profile.back"),
        Binding("enter", "order", "order", tooltip="orders it, once its cost was shown",
                id="profile.order"),
        Binding("P", "anew", "profile again", show=False,
                tooltip="asks for another order after this one", id="profile.anew"),
        Binding("s", "write", "save", show=False,
                tooltip="writes the ranks that are complete, and ends the others",
                id="profile.write"),
        Binding("plus", "longer(1)", "longer", show=False, tooltip="more steps, or seconds",
                id="profile.longer"),
        Binding("minus", "longer(-1)", "shorter", show=False, tooltip="fewer steps, or seconds",
                id="profile.shorter"),
        Binding("u", "unit", "unit", show=False, tooltip="seconds instead of steps, and back",
                id="profile.unit"),
        *(
            Binding(key, f"option('{name}')", name, show=False, tooltip=text, id=f"profile.{name}")
            for key, name, text in (
                ("d", "shapes", "with shapes, or without"),
                ("b", "stacks", "with stacks of Python, or without"),
                ("A", "memory", "with torch's allocator, or without"),
                ("X", "execution", "with an execution trace, or without"),
            )
        ),
    ]  # fmt: skip

    def __init__(self, marked: set[int], ranks: tuple[int, ...]) -> None:
        super().__init__(marked)
        self.ranks = ranks
        self.options = ProfileOptions()
        self._progress: ProfileProgress | None = None
        self._ordered = False

    @property
    def crumb(self) -> str:  # type: ignore[override]  # names the ranks
        return f"profile of {folded(self.ranks)}"

    @property
    def under_way(self) -> bool:
        """Whether an order is under way."""
        if self._progress is None:
            return self._ordered  # no progress was reported yet
        return self._progress.state in ("running", "merging")

    def why_unavailable(self, action: str) -> str:
        name = action_name(action)
        if name in ("anew", "order") and self.under_way:
            return "One order at a time: esc withdraws this one; P asks for another after it."
        if name == "anew" and not self._ordered:
            return "Nothing is ordered yet: enter orders it."
        if name in ("order", "option", "unit", "longer") and self._ordered:
            return "This is ordered already: P asks for another one when it is over."
        if name == "write" and not self.under_way:
            return "No order is under way."
        return super().why_unavailable(action)

    def panes(self) -> ComposeResult:
        yield ProfilePane()

    def take_news(self) -> None:
        progress: ProfileProgress | None = self.news["profile"]
        self._progress = progress
        if progress is not None and progress.state in ("running", "merging"):
            self._ordered = True  # an earlier screen ordered it: it goes on

    def draw(self, frame: Frame) -> None:
        pane = self.query_one(ProfilePane)
        if self._ordered and self._progress is not None:
            shown = {one.rank for one in self._progress.ranks}
            pane.show(self._progress, () if shown == set(self.ranks) else self.ranks)
            return
        try:
            path = str(self._path(frame))
        except OSError as error:
            pane.ask(self.ranks, self.options, "", f"Cannot write here: {error.strerror}.")
            return
        unavailable = self.why_unavailable("profile")
        standing = standing_text(frame, self.ranks, self.options)
        before = self._progress
        written = before.path if before is not None and before.state == "written" else ""
        pane.ask(self.ranks, self.options, path, unavailable, standing=standing, before=written)

    def _path(self, frame: Frame) -> Path:
        return default_path(frame, frame.wall_ns, SUFFIX, folder=self.preferences.folder)

    def action_order(self) -> None:
        frame = self.frame
        if frame is None or not (self.check_available("order") and self.check_available("profile")):
            return
        self._progress, self._ordered = None, True
        order = ProfileOrder(self.ranks, self.options, self._path(frame))
        self.post_message(Do(order))

    async def action_withdraw_or_back(self) -> None:
        if self.under_way:
            self.post_message(Do(Withdrawal()))
        else:
            await self.app.run_action("back")

    def action_write(self) -> None:
        progress = self._progress
        if progress is None or not self.check_available("write"):
            return
        if progress.can_be_ended:
            self.post_message(Do(Withdrawal(keep=True)))
        elif progress.state == "running":
            self.app.notify("No rank is complete yet: esc withdraws the order.", timeout=4)

    def action_option(self, name: str) -> None:
        """Switches an option of the order."""
        self._change(replace(self.options, **{name: not getattr(self.options, name)}))

    def action_unit(self) -> None:
        if self.options.steps:
            self._change(replace(self.options, steps=0, seconds=5.0))
        else:
            self._change(replace(self.options, steps=5, seconds=0.0))

    def action_longer(self, by: int) -> None:
        options = self.options
        if options.steps:
            self._change(replace(options, steps=_next(STEPS, options.steps, by)))
        else:
            self._change(replace(options, seconds=_next(SECONDS, options.seconds, by)))

    def action_anew(self) -> None:
        """Asks again after an order has ended."""
        if self.check_available("anew"):
            self._ordered = False
            self.draw_all()

    def _change(self, options: ProfileOptions) -> None:
        if self.check_available("option"):
            self.options = options
            self.draw_all()


def _next(choices: tuple[float, ...], now: float, by: int) -> float:
    return choices[max(0, min(len(choices) - 1, choices.index(now) + by))]


class ProfilePane(LineView):
    """Scrolls through lines of text."""

    def __init__(self) -> None:
        super().__init__(id="profile", classes="pane")
        self.options = ProfileOptions()
        self.ranks: tuple[int, ...] = ()
        self.path = ""
        self.progress: ProfileProgress | None = None
        self.unavailable = ""
        self.standing = ""
        self.before = ""
        """The file of the previous order."""
        self.waiting: tuple[int, ...] = ()

    def ask(
        self,
        ranks: tuple[int, ...],
        options: ProfileOptions,
        path: str,
        unavailable: str,
        *,
        standing: str = "",
        before: str = "",
    ) -> None:
        """Shows the question.

        `unavailable` says why nothing can be ordered; `standing` names ranks that stand still;
        `before` is the file of the previous order.
        """
        self.ranks, self.options, self.path = ranks, options, path
        self.standing, self.before = standing, before
        self.progress, self.unavailable = None, unavailable
        self.entitle(f"profile {folded(ranks)}?")
        self.redraw()

    def show(self, progress: ProfileProgress, waiting: tuple[int, ...] = ()) -> None:
        """Shows the order's progress; `waiting` are other ranks for which `P` was pressed."""
        self.progress, self.waiting = progress, waiting
        self.entitle(f"profile of {folded(rank.rank for rank in progress.ranks)}")
        self.redraw()

    def content(self, width: int) -> Sequence[Line]:
        if self.progress is not None:
            return list(_progress_rows(self.progress, self.waiting, width))
        return [row for line in self._question() for row in _wrapped(line, width)]

    def _question(self) -> Iterable[Line]:
        options = self.options
        if self.unavailable:
            yield plain(self.unavailable, "warn")
            return
        for text in cost_lines(options):
            yield plain(text)
        if self.standing:
            yield plain(f"{self.standing} r samples stacks instead, now.", "warn")
        yield ()
        yield (("  + -", "key"), (f"  for {length_text(options)}", "strong"), ("   u", "key"),
               ("  seconds instead of steps, and back", ""))  # fmt: skip
        for key, name in _KEYS:
            on = bool(getattr(options, name))
            cost = f": {OPTION_COSTS[name]}" if name in OPTION_COSTS else ""
            yield ((f"  {key}  ", "key"), ("[x] " if on else "[ ] ", ""),
                   (OPTION_NAMES[name], "strong" if on else ""), (cost, ""))  # fmt: skip
        yield ()
        yield (("enter", "key"), (" orders it, into ", ""), (short_path(self.path), "strong"))
        yield (("esc", "key"), (" leaves without an order", ""))
        if self.before:
            yield plain(f"The previous order was written: {short_path(self.before)}", "dim")


def _progress_rows(
    progress: ProfileProgress, waiting: tuple[int, ...], width: int
) -> Iterable[Line]:
    if progress.state in ("running", "merging"):
        if waiting:
            text = f"{folded(waiting)}: nothing is ordered, as this order is under way; P asks when"
            yield from wrap(f"{text} it is over", width, "warn")
        yield plain(progress_text(progress), "strong")
        if progress.can_be_ended:
            complete = sum(rank.complete for rank in progress.ranks)
            text = f" saves {counted(complete, 'complete rank')}, without the others"
            yield (("s", "key"), (text, ""))
        yield (("esc", "key"), (" withdraws the order in all ranks and writes nothing", ""))
    else:
        words = {"written": "good", "failed": "bad", "withdrawn": "warn"}
        for text in result_lines(progress):
            yield from wrap(text, width, words.get(progress.state, ""))
        opens = "ui.perfetto.dev opens it; " if progress.state == "written" else ""
        again = folded(waiting or [rank.rank for rank in progress.ranks])
        yield plain(f"{opens}P asks for another one, of {again}", "dim")
        if table := allocation_lines(progress.allocations):
            yield ()
            yield from (clip(plain(text), width) for text in table)
    yield ()
    if progress.state != "withdrawn":  # a withdrawn order is over in all ranks
        hosts = max((len(rank.host) for rank in progress.ranks), default=0)
        yield from (_rank_row(rank, hosts, width) for rank in progress.ranks)


def _rank_row(rank: RankProfile, hosts: int, width: int) -> Line:
    tone = _TONES.get(rank.stage, "")
    return clip(
        ((f"rank {rank.rank:<5} {rank.host:<{hosts}}  ", ""), (rank_text(rank), tone)), width
    )


def _wrapped(line: Line, width: int) -> Sequence[Line]:
    if len(line) == 1:
        return wrap(line[0][0], width, line[0][1])
    return (clip(line, width),)

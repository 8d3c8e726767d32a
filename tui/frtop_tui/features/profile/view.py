"""torch's profiler in some ranks: the question with its cost, then progress and result."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Final

from msgspec.structs import replace
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from frtop_tui.diagnosis.model import Frame
from frtop_tui.features.profile.model import (
    ProfileOptions,
    ProfileOrder,
    ProfileProgress,
    Withdrawal,
)
from frtop_tui.features.profile.pane import ProfilePane
from frtop_tui.features.profile.words import standing_text
from frtop_tui.files.output_path import default_path
from frtop_tui.job.naming import folded
from frtop_tui.screens.availability import action_name
from frtop_tui.screens.base import FrameScreen
from frtop_tui.screens.messages import Do

STEPS: Final = (1, 2, 3, 5, 10, 20, 50, 100)
SECONDS: Final = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
SUFFIX: Final = "-profile.json.gz"


class ProfileScreen(FrameScreen):
    """Orders nothing until `enter`; `escape` withdraws the order, `w` writes what is there."""

    AUTO_FOCUS = "#profile"
    is_visited = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "withdraw_or_back", "back", tooltip="withdraws an order first",
                id="profile.back"),
        Binding("enter", "order", "order", tooltip="orders it, once its cost was shown",
                id="profile.order"),
        Binding("P", "anew", "another", show=False,
                tooltip="asks for another order, once this one is over", id="profile.anew"),
        Binding("w", "write", "write", show=False,
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
                ("s", "shapes", "with shapes, or without"),
                ("c", "stacks", "with stacks of Python, or without"),
                ("m", "memory", "with torch's allocator, or without"),
                ("d", "devices", "with what runs on GPUs, or without"),
                ("x", "execution", "with an execution trace, or without"),
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
        """Whether an order is."""
        if self._progress is None:
            return self._ordered  # nothing has come of it yet
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
            self._ordered = True  # by an earlier screen: it goes on

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
        """Adds something to the order, or leaves it out."""
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
        """Asks again, after an order came to its end."""
        if self.check_available("anew"):
            self._ordered = False
            self.draw_all()

    def _change(self, options: ProfileOptions) -> None:
        if self.check_available("option"):
            self.options = options
            self.draw_all()


def _next(choices: tuple[float, ...], now: float, by: int) -> float:
    return choices[max(0, min(len(choices) - 1, choices.index(now) + by))]

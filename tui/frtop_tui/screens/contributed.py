"""What features add to the screens: views, commands, keys, messages and styles.

A feature has a module `screens` with `SCREENS` in it. It may import the core's screens, except
`commands` and the application, which import this.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

from textual.app import App
from textual.binding import Binding

from frtop_tui.connect.source import Source
from frtop_tui.registry import contributions
from frtop_tui.screens.base import FrameScreen, Preferences
from frtop_tui.screens.completion import (
    Action,
    CommandScope,
    Outcome,
    TypedCommand,
    nothing_to_name,
)
from frtop_tui.screens.messages import FeatureMessage
from frtop_tui.text.lines import WordLine

NOBODY: Final = "No rank is known yet."


class FeatureApp(App[None], inherit_bindings=False):
    """The part of the application that features know."""

    source: Source
    marked: set[int]
    preferences: Preferences

    async def open(self, screen: FrameScreen) -> None:
        """Opens a screen on top of the others and draws it at once."""
        raise NotImplementedError


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
    place: int = 1000
    """Its place in lists of views."""

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
        """Without an argument, the same as the key."""
        if text and self.run is not None:
            return self.run(text, situation)
        return Action(f"view('{self.name}')")


@dataclass(frozen=True, slots=True)
class PlacedCommand:
    """A command that opens no view, with its place in lists of commands."""

    place: int
    command: TypedCommand


@dataclass(frozen=True, slots=True)
class FeatureKey:
    """A key on every screen, or with `on_ranks` on those with a rank under the cursor.

    Without an `action` it calls `press` with the application and the visible screen.
    """

    key: str
    name: str
    label: str
    tooltip: str
    press: Callable[[Any, FrameScreen], Awaitable[None]] | None = None
    action: str = ""
    id: str = ""
    on_ranks: bool = False
    comes_first: bool = False
    """With `on_ranks`: the key line lists it before other views of a rank."""

    @property
    def binding(self) -> Binding:
        return Binding(
            self.key,
            self.action or f"app.feature('{self.name}')",
            self.label,
            show=self.on_ranks,
            tooltip=self.tooltip,
            id=self.id or self.name,
        )


@dataclass(frozen=True, slots=True)
class Screens:
    """All that one feature adds."""

    views: tuple[View, ...] = ()
    commands: tuple[PlacedCommand, ...] = ()
    keys: tuple[FeatureKey, ...] = ()
    handlers: Mapping[type[FeatureMessage], Callable[[Any, Any], Awaitable[None]]] = field(
        default_factory=dict
    )
    styles: tuple[str, ...] = ()
    """Files of `features/`."""
    remark: Callable[[Mapping[str, Any]], WordLine | None] | None = None
    """Makes a sentence below the verdict from the source's news."""


@cache
def of_features() -> tuple[Screens, ...]:
    """What all features add."""
    return tuple(contributions("screens", "SCREENS"))


def rank_keys(*, first: bool = False) -> list[Binding]:
    """Bindings of features for a rank under the cursor: those that are first, or the rest."""
    found = (one for screens in of_features() for one in screens.keys if one.on_ranks)
    return [one.binding for one in found if one.comes_first is first]


def common_keys() -> list[Binding]:
    """Bindings that features have on every screen."""
    found = (one for screens in of_features() for one in screens.keys if not one.on_ranks)
    return [one.binding for one in sorted(found, key=lambda one: one.key)]


def chosen_ranks(app: FeatureApp, screen: FrameScreen) -> tuple[int, ...]:
    """The marked ranks, else the one under the cursor, else all; notifies if there is none."""
    known = set(screen.frame.ranks) if screen.frame is not None else set()
    one = rank_of_screen(screen)
    ranks = tuple(sorted((app.marked or ({one} if one is not None else set()) or known) & known))
    if not ranks:
        app.notify(NOBODY, timeout=4)
    return ranks


def rank_of_screen(screen: FrameScreen) -> int | None:
    """The rank that a screen is about, or the one under its cursor."""
    one = getattr(screen, "rank", getattr(screen, "chosen", None))
    return one if isinstance(one, int) else None

"""The keys of all screens, from the program's bindings: for the help and docs/keys.md."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator

from textual.binding import Binding
from textual.dom import DOMNode

from frtop_tui.screens.base import FrameScreen
from frtop_tui.screens.contributed import of_features
from frtop_tui.widgets.keyline import key_name


def owners() -> Iterator[tuple[str, type[DOMNode]]]:
    """What has keys of its own, by the screen that it is, or is a part of."""
    of_features()  # imports what they draw
    found = {one for one in _below(DOMNode) if "BINDINGS" in one.__dict__}
    ours = {one for one in found if one.__module__.startswith("frtop_tui.")}
    screens = {one: _screen_of(one, ours) for one in ours}
    for one in sorted(
        ours, key=lambda one: (_in_words(screens[one]), one is not screens[one], one.__name__)
    ):
        yield _in_words(screens[one]), one


def _below(kind: type[DOMNode]) -> Iterator[type[DOMNode]]:
    for one in kind.__subclasses__():
        yield one
        yield from _below(one)


def _screen_of(part: type[DOMNode], found: Iterable[type[DOMNode]]) -> type[DOMNode]:
    """The one screen whose module has this part; itself where it is a screen, or in several."""
    screens = [one for one in found if issubclass(one, FrameScreen) and one is not FrameScreen]
    having = [one for one in screens if part in vars(sys.modules[one.__module__]).values()]
    return having[0] if part not in screens and len(having) == 1 else part


def _in_words(kind: type[DOMNode]) -> str:
    name = kind.__name__.removesuffix("Screen")
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower()


def own_keys(owner: type[DOMNode]) -> Iterator[tuple[list[str], str]]:
    """The keys of each action that a class declares, and what it does."""
    for binding in owner.__dict__["BINDINGS"]:
        assert isinstance(binding, Binding)
        yield [key_name(key) for key in binding.key.split(",")], words_of(binding)


def words_of(binding: Binding) -> str:
    """What a key does: its label, and more where there is more."""
    label, more = binding.description, binding.tooltip
    return f"{label}: {more}" if more and more != label else label

"""The help of each screen lists the keys that work there, and its own ones first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from textual.binding import Binding
from textual.dom import DOMNode

from frtop_tui.screens.all_keys import own_keys, owners
from frtop_tui.screens.help import HERE, SECTIONS, HelpScreen
from frtop_tui.screens.overview import Overview
from frtop_tui.widgets.keyline import key_name

from . import scenes
from .driving import Driven, driven

SCREENS = {
    "overview": (),
    "ranks": ("2",),
    "hosts": ("3",),
    "stacks": ("4",),
    "statistics": ("5",),
    "rank": ("enter",),
    "tensors": ("t",),
    "timeline": ("T",),
    "queues": ("c",),
    "jobs": ("J",),
    "export": ("E",),
    "profile": ("P",),
    "sampled stacks": ("r",),
    **{name: ("colon", *name, "enter") for name in ("waits", "settings", "modules", "record")},
    "group": ("shift+tab", "j", "enter"),  # the last, as the focus stays there
}


def ours(app: Driven) -> Iterator[tuple[DOMNode, Binding]]:
    """Bindings that our classes declare for the screen, for what has the focus, and for all.

    Without those that do nothing now.
    """
    focused = app.app.focused
    for node in (app.app, app.screen, *(focused.ancestors_with_self if focused else ())):
        for owner in type(node).__mro__:
            if owner.__module__.startswith("frtop_tui."):
                for binding in owner.__dict__.get("BINDINGS", ()):
                    assert isinstance(binding, Binding)
                    if node.check_action(binding.action, ()):
                        yield node, binding


async def test_a_key_that_works_is_in_the_help_and_none_other() -> None:
    async with driven(scenes.hung()) as app:
        for name, keys in SCREENS.items():
            await app.press("escape", "escape", "1", *keys)
            await check_help(app, name)


async def check_help(app: Driven, name: str) -> None:
    declared = list(ours(app))
    own = {
        key_name(key)
        for binding in type(app.screen).BINDINGS
        if isinstance(binding, Binding)
        for key in binding.key.split(",")
    }
    await app.app.run_action("help")
    await app.drawn()
    screen = app.screen
    assert isinstance(screen, HelpScreen), name
    listed = {name: section for keys, _, section in screen.keys for name in keys.split()}
    for node, binding in declared:
        assert binding.id, f"{binding.key}: without an id the help leaves it out"
        target, _, action = binding.action.partition("(")[0].rpartition(".")
        assert hasattr(app.app if target else node, f"action_{action}"), binding.key
    keys = {key_name(key) for _, binding in declared for key in binding.key.split(",")}
    assert listed.keys() == keys, name
    assert all(listed[name] == HERE for name in own), name
    order = [SECTIONS.index(section) for _, _, section in screen.keys]
    assert order == sorted(order), name


async def test_the_help_is_searched_and_has_typed_commands_with_their_arguments() -> None:
    async with driven(scenes.hung()) as app:
        await app.press("question_mark")
        await app.sees("help: keys of job; / searches", "open: show the rank")
        await app.press("slash", *"modules")
        await app.sees(":modules ", "ops by the module and phase")
        assert "show the rank" not in app.text()
        await app.press("ctrl+u", *"format path")
        await app.sees(":export FORMAT [PATH]")
        await app.press("ctrl+u", *"narrower")  # of another screen
        await app.sees("timeline: zoom: narrower columns")
        await app.press("ctrl+u", "w")  # one letter is a key
        await app.sees("waits: who waits for whom")
        assert ":waits" not in app.text()
        await app.press("ctrl+u", *"no such thing")
        await app.sees("nothing has no such thing")
        await app.press("escape")
        await app.sees("open: show the rank")
        await app.press("q")
        assert isinstance(app.screen, Overview)


GENERAL = {"enter", "space", "tab", "left", "right", "up", "down", "h", "l", "+", "=", "-"}
"""Keys that mean open, switch, move, more and less, whatever the cursor is on."""
EXCEPTIONS = {"q: back, quit", "y: copy, save", "n: back, next"}
"""From the overview, back leads out of frtop; in a question y and n answer it."""


def test_a_key_means_one_thing_on_all_screens() -> None:
    meanings: dict[str, set[str]] = defaultdict(set)
    for _, owner in owners():
        for keys, words in own_keys(owner):
            for key in keys:
                # Such as "next": next rank, next op, next group.
                meanings[key].add(words.split()[0].rstrip(":"))
    assert len(meanings) > 60
    several = {
        f"{key}: {', '.join(sorted(words))}"
        for key, words in meanings.items()
        if len(words) > 1 and key not in GENERAL
    }
    assert several == EXCEPTIONS

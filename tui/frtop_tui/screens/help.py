"""Help: the keys of the previous screen, all commands, and what words mean; / searches it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import ClassVar, Final, NamedTuple

from textual.app import App, ComposeResult
from textual.binding import ActiveBinding, Binding, BindingType
from textual.widgets import Input

from frtop_tui.diagnosis.model import Frame
from frtop_tui.screens.all_keys import own_keys, owners, words_of
from frtop_tui.screens.base import FrameScreen
from frtop_tui.screens.commands import COMMANDS
from frtop_tui.text.rank_states import LETTERS, MEANINGS
from frtop_tui.widgets.fields import FilterField
from frtop_tui.widgets.keyline import key_name, key_priority
from frtop_tui.widgets.lines import LineView
from frtop_tui.widgets.spans import Line, fit, plain, wrap

GLOSSARY = {
    "verdict": "which rank everyone is waiting for, why, and whether the job is hung",
    "suspect": "based on one snapshot; `confirmed`: two snapshots at least 2 s apart agree",
    "no progress": "same op, same stack, no CPU time and no I/O between two snapshots",
    "#8812": "the op's number in its group; `~#8812`: not counted from the group's creation",
    "pending": "issued and not complete; `blocked`: a thread cannot continue without it",
    "heartbeat": "the recorder's sign of life, several per second",
    "reporting": "ranks whose agent reports; a rank that is unreachable is never called healthy",
    "+1 other job": "another job is running here; J lists it, `frtop --job NAME` starts with it",
    "last op": "in the list of jobs: when a rank last issued an op; other jobs get no verdict",
    "capture": "a file with everything known, for `frtop open`; frtop writes one for every"
    " confirmed hang",
    "checksum": "equal where ranks hold the same data; inputs of a reduction usually differ",
    "(t tensors)": "a key in brackets is unavailable now; press it to see why",
    "may ask": "on a host: whether our key may ask its ranks for tensors (t)",
    "idle": "a thread that waits; the main thread of a hung rank is usually idle",
    "yours": "the innermost frame outside torch, the standard library and packages",
}
FILTER = {
    "rank:0-7,64": "these ranks; `rank:` may be left out",
    "host:node[0-3]": "ranks of these hosts, or of a host with this in its name",
    "group:tp": "members of process groups whose name begins so",
    "late,dead": "ranks in one of these states",
    "marked": "ranks marked with space",
    "!late": "all others; a rank must match all words",
}


UNAVAILABLE: Final = ") unavailable: "
HERE: Final = ""
EVERYWHERE: Final = "on every screen"
MOVING: Final = "moving around"
SECTIONS: Final = (HERE, EVERYWHERE, MOVING)
_MOVES: Final = frozenset(
    binding.id
    for owner in (LineView, FrameScreen)
    for binding in owner.BINDINGS
    if isinstance(binding, Binding)
)
"""Ids of bindings that all panes and screens have."""


class KeyRow(NamedTuple):
    """An action: its keys, what it does, and one of `SECTIONS`."""

    keys: str
    words: str
    section: str


def _section(binding: ActiveBinding) -> str:
    if isinstance(binding.node, App):
        return EVERYWHERE
    return MOVING if binding.binding.id in _MOVES else HERE


def key_rows(
    bindings: Iterable[ActiveBinding], why_unavailable: Callable[[str], str] = lambda _: ""
) -> list[KeyRow]:
    """One row per action, section by section; bindings without an id are Textual's own.

    An unavailable action is in brackets, followed by the reason.
    """
    rows: dict[str, tuple[list[str], str, str]] = {}
    ours = [
        (_section(active), active.binding)
        for active in bindings
        if active.enabled and active.binding.id
    ]
    # A screen's own keys as in the key line, those of all screens as they are declared.
    for section, binding in sorted(
        ours,
        key=lambda pair: (
            SECTIONS.index(pair[0]),
            *((not pair[1].show, key_priority(pair[1])) if pair[0] == HERE else ()),
        ),
    ):
        words = words_of(binding)
        reason = why_unavailable(binding.action)
        if reason:
            words = f"({words}{UNAVAILABLE}{reason}"
        keys = rows.setdefault(binding.action, ([], words, section))[0]
        keys.append(key_name(binding.key))
    return [KeyRow(" ".join(keys), words, section) for keys, words, section in rows.values()]


class HelpEntry(NamedTuple):
    """A key, a command or a word, with its tone, and what it means."""

    label: str
    tone: str
    words: str

    def has(self, sought: str) -> bool:
        """Whether it has all these words; a single letter is a key."""
        if len(sought) == 1:
            return sought in self.label.split()
        text = f"{self.label} {self.words}".lower()
        return all(word in text for word in sought.lower().split())


def help_sections(keys: Sequence[KeyRow]) -> Iterator[tuple[str, list[HelpEntry]]]:
    """All that help knows, in the order in which somebody on call needs it."""
    by_section = {title: list(rows) for title, rows in groupby(keys, attrgetter("section"))}

    def keys_of(title: str) -> list[HelpEntry]:
        found = [
            HelpEntry(names, "dim" if words.startswith("(") else "key", words)
            for names, words, _ in by_section.get(title, ())
        ]
        return sorted(found, key=lambda one: one.tone == "dim")  # what works now is first

    yield HERE, keys_of(HERE)
    yield EVERYWHERE, keys_of(EVERYWHERE)
    yield (
        "commands; tab completes",
        [
            HelpEntry(f":{one.usage}", "key", f"{one.summary}{f'; key {one.key}' * bool(one.key)}")
            for one in COMMANDS
        ],
    )
    states = [HelpEntry(f"{LETTERS[one]} {one}", one, words) for one, words in MEANINGS.items()]
    yield "rank states", states
    yield "words of a filter", [HelpEntry(word, "key", words) for word, words in FILTER.items()]
    yield MOVING, keys_of(MOVING)
    yield "glossary", [HelpEntry(word, "strong", words) for word, words in GLOSSARY.items()]
    yield "on other screens", list(_of_other_screens(keys))


def _of_other_screens(keys: Sequence[KeyRow]) -> Iterator[HelpEntry]:
    """Keys that do nothing here, once where they do the same on several screens."""
    here = [(row.keys, row.words.removeprefix("(").split(UNAVAILABLE)[0]) for row in keys]
    seen = {(key, words) for of_row, words in here for key in of_row.split()}
    for screen, owner in owners():
        for names, words in own_keys(owner):
            new = [key for key in names if (key, words) not in seen]
            seen.update((key, words) for key in names)
            if new and not issubclass(owner, App):
                yield HelpEntry(" ".join(new), "key", f"{screen}: {words}")


class HelpLines(LineView):
    """Keys, commands, rank states, words of filters, and a glossary."""

    def __init__(self, keys: Sequence[KeyRow], of: str) -> None:
        super().__init__(id="help", classes="pane")
        self.entitle(f"help: keys of {of}; / searches, j and k scroll")
        self.sections = list(help_sections(keys))
        self.sought = ""

    def content(self, width: int) -> Sequence[Line]:
        rows: list[Line] = []
        for title, entries in self.sections:
            found = [one for one in entries if one.has(self.sought)] if self.sought else entries
            if not found:
                continue
            if title:
                rows += [(), plain(title, "strong")] if rows else [plain(title, "strong")]
            room = max(len(one.label) for one in entries) + 2
            for label, tone, words in found:
                of_words = "dim" if tone == "dim" else ""
                rows += wrap(words, width, of_words, (fit(label, room), tone))
        return rows or [plain(f"nothing has {self.sought}", "warn")]


class HelpScreen(FrameScreen):
    """Opened over another screen with that screen's keys."""

    AUTO_FOCUS = "#help"
    crumb = "help"
    is_visited = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "clear_or_back", "back", tooltip="end the search, then back",
                id="back"),
        Binding("slash", "filter", "filter", tooltip="search keys, commands and words",
                id="filter"),
    ]  # fmt: skip

    def __init__(self, marked: set[int], keys: Sequence[KeyRow], of: str) -> None:
        super().__init__(marked)
        self.keys, self.of = keys, of

    def panes(self) -> ComposeResult:
        yield FilterField("", "a key, or words of what you look for")
        yield HelpLines(self.keys, self.of)

    def on_mount(self) -> None:
        super().on_mount()
        self.query_one(Input).display = False

    def draw(self, frame: Frame) -> None:
        """The help does not depend on the frame."""

    def action_filter(self) -> None:
        field = self.query_one(Input)
        field.display = True
        # `focus()` acts some messages later; the next key must reach the field.
        self.set_focus(field)

    def on_input_changed(self, event: Input.Changed) -> None:
        lines = self.query_one(HelpLines)
        lines.sought = event.value.strip()
        lines.scroll_to(y=0, animate=False)
        lines.redraw()

    def on_input_submitted(self) -> None:
        self.set_focus(self.query_one(HelpLines))

    async def action_clear_or_back(self) -> None:
        field = self.query_one(Input)
        if field.display:
            field.value = ""
            field.display = False
            self.set_focus(self.query_one(HelpLines))
        else:
            await self.run_action("app.back")

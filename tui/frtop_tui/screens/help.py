"""Help: the keys of the previous screen, its own ones first, and a glossary."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import ClassVar, Final, NamedTuple

from textual.app import App, ComposeResult
from textual.binding import ActiveBinding, Binding, BindingType

from frtop_tui.diagnosis.model import Frame
from frtop_tui.screens.base import BACK, FrameScreen
from frtop_tui.text.rank_states import LETTERS, MEANINGS
from frtop_tui.widgets.keyline import key_name
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
FILTER = (
    "rank:0-7,64   host:node[0-3]   group:tp   late   late,dead   marked   !late",
    "a rank must match all words; `!` negates a word",
)


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
    # The keys of the key line are first.
    for section, binding in sorted(
        ours, key=lambda pair: (SECTIONS.index(pair[0]), not pair[1].show)
    ):
        words = binding.description
        if binding.tooltip and binding.tooltip != words:
            words = f"{words}: {binding.tooltip}"
        reason = why_unavailable(binding.action)
        if reason:
            words = f"({words}) unavailable: {reason}"
        keys = rows.setdefault(binding.action, ([], words, section))[0]
        keys.append(key_name(binding.key))
    return [KeyRow(" ".join(keys), words, section) for keys, words, section in rows.values()]


class HelpLines(LineView):
    """Keys, rank states, glossary and filter syntax."""

    def __init__(self, keys: Sequence[KeyRow], of: str) -> None:
        super().__init__(id="help", classes="pane")
        self.entitle(f"help: keys of {of}; j and k scroll")
        self.keys = keys

    def content(self, width: int) -> Sequence[Line]:
        rows: list[Line] = []
        label_width = 18
        for section, keys in groupby(self.keys, attrgetter("section")):
            if section:
                rows += [(), plain(section, "strong")]
            for names, words, _ in keys:
                unavailable = words.startswith("(")
                name = (fit(names, label_width) + " ", "dim" if unavailable else "key")
                rows += wrap(words, width, "dim" if unavailable else "", name)
        rows += [(), plain("rank states", "strong")]
        for state, meaning in MEANINGS.items():
            label = f"{LETTERS[state]} {state}"
            rows += wrap(meaning, width, "", (fit(label, label_width) + " ", state))
        rows += [(), plain("glossary", "strong")]
        for word, meaning in GLOSSARY.items():
            rows += wrap(meaning, width, "", (fit(word, label_width) + " ", "strong"))
        rows += [(), plain("filter", "strong")]
        rows += [plain(row) for row in FILTER]
        return rows


class HelpScreen(FrameScreen):
    """Opened over another screen with that screen's keys."""

    AUTO_FOCUS = "#help"
    crumb = "help"
    is_visited = False
    BINDINGS: ClassVar[list[BindingType]] = [BACK]

    def __init__(self, marked: set[int], keys: Sequence[KeyRow], of: str) -> None:
        super().__init__(marked)
        self.keys, self.of = keys, of

    def panes(self) -> ComposeResult:
        yield HelpLines(self.keys, self.of)

    def draw(self, frame: Frame) -> None:
        """The help does not depend on the frame."""

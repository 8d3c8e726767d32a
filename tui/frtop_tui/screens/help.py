"""Help: the keys of the screen one came from, taken from its live bindings, and the words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import ActiveBinding, Binding, BindingType

from frtop_tui.diagnosis.model import Frame
from frtop_tui.screens.base import FrameScreen
from frtop_tui.widgets.keyline import key_name
from frtop_tui.widgets.lines import LineView
from frtop_tui.widgets.spans import Line, fit, plain, wrap
from frtop_tui.widgets.wording import LETTERS, MEANINGS

WORDS = {
    "verdict": "who is waited for, why, and whether it is hung",
    "suspect": "one look says so; `confirmed`: two looks at least 2 s apart agree",
    "no progress": "same number, same stack, no CPU time and no I/O between two looks",
    "#8812": "the op's place in its group; `~#8812`: not counted from the group's creation",
    "pending": "issued and not complete; `blocked`: a thread cannot go on without it",
    "beat": "the recorder's sign of life, several a second",
    "heard": "ranks whose agent speaks; what is not heard is never called healthy",
    "+1 other job": "one more job is heard; J chooses, `frtop --job NAME` starts with it",
    "last op": "of a job in the list: when anybody there last did anything; it is not judged",
    "capture": "one file with all that is known, for `frtop open`; a confirmed hang makes its own",
    "checksum": "equal where ranks hold the same data; of what is reduced, inputs may well differ",
    "(t tensors)": "a key in brackets can do nothing now; pressed, it says why",
    "may ask": "of a host: whether our key may ask its ranks (t, T), or only look",
    "idle": "of a thread: it waits; a hung main thread reads idle",
    "yours": "the innermost frame outside torch, the standard library and packages",
}
FILTER = (
    "rank:0-7,64   host:node[0-3]   group:tp   late   late,dead   marked   !late",
    "several words must all hold; `!` turns a word around",
)


def key_rows(
    bindings: Iterable[ActiveBinding], barred: Callable[[str], str] = lambda _: ""
) -> list[tuple[str, str]]:
    """(keys, what they do), one row per action. Keys without an id are Textual's own.

    Of an action that is barred, why is said in place of what it would do.
    """
    rows: dict[str, tuple[list[str], str]] = {}
    ours = [binding for _, binding, enabled, _ in bindings if enabled and binding.id]
    # What the last line advertises comes first; moving about is what one knows already.
    for binding in sorted(ours, key=lambda binding: not binding.show):
        words = binding.description
        if binding.tooltip and binding.tooltip != words:
            words = f"{words}: {binding.tooltip}"
        reason = barred(binding.action)
        if reason:
            words = f"({words}) not now: {reason}"
        rows.setdefault(binding.action, ([], words))[0].append(key_name(binding.key))
    return [(" ".join(keys), words) for keys, words in rows.values()]


class HelpLines(LineView):
    """All of it, to scroll."""

    def __init__(self, keys: Sequence[tuple[str, str]], of: str) -> None:
        super().__init__(id="help", classes="pane")
        self.entitle(f"help: keys of {of}")
        self.keys = keys

    def content(self, width: int) -> Sequence[Line]:
        rows: list[Line] = []
        keys = 18
        for names, words in self.keys:
            barred = words.startswith("(")
            name = (fit(names, keys) + " ", "dim" if barred else "key")
            rows += wrap(words, width, "dim" if barred else "", name)
        rows += [(), plain("letters of the rank grid", "strong")]
        for posture, meaning in MEANINGS.items():
            label = f"{LETTERS[posture]} {posture}"
            rows += wrap(meaning, width, "", (fit(label, keys) + " ", posture))
        rows += [(), plain("words", "strong")]
        for word, meaning in WORDS.items():
            rows += wrap(meaning, width, "", (fit(word, keys) + " ", "strong"))
        rows += [(), plain("filter", "strong")]
        rows += [plain(row) for row in FILTER]
        return rows


class HelpScreen(FrameScreen):
    """Opened over another screen with what that screen's keys do."""

    AUTO_FOCUS = "#help"
    crumb = "help"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "app.back", "back", tooltip="to where one came from", id="back"),
    ]

    def __init__(self, marked: set[int], keys: Sequence[tuple[str, str]], of: str) -> None:
        super().__init__(marked)
        self.keys, self.of = keys, of

    def panes(self) -> ComposeResult:
        yield HelpLines(self.keys, self.of)

    def draw(self, frame: Frame) -> None:
        """Nothing here depends on the frame; the top lines do."""

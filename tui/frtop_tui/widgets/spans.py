"""Lines of text in cells of a terminal: cut, wrapped, side by side. Without Textual."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from rich.cells import cell_len, set_cell_size

from frtop_tui.text.lines import FILLED, TONES, Line, Span, WordLine, join, plain, text_of

__all__ = ["FILLED", "TONES", "Line", "Span", "join", "plain", "text_of"]


def cells(text: str) -> int:
    """Width of a text in terminal cells; skips the look-up of each character for ASCII."""
    return len(text) if text.isascii() else cell_len(text)


def width_of(line: Line) -> int:
    """Width of the line in terminal cells."""
    return sum(cells(text) for text, _ in line)


def fit(text: str, width: int, *, right: bool = False) -> str:
    """The text in exactly `width` cells; a `~` marks where it was cut."""
    length = cells(text)
    if length > width:
        return set_cell_size(text, width - 1) + "~" if width > 0 else ""
    return " " * (width - length) + text if right else text + " " * (width - length)


def fit_middle(text: str, width: int) -> str:
    """Like `fit`, for names whose end matters as much as their start: `DDP buck~2.mlp`."""
    if cells(text) <= width:
        return fit(text, width)
    end = (width - 1) // 2
    return fit(text, width - end) + text[len(text) - end :] if end > 0 else fit(text, width)


def shorten_ranks(folded: str, width: int) -> str:
    """A folded list of ranks in `width` cells, cut between two ranges: `0-36,40,..`."""
    if len(folded) <= width:
        return folded
    return folded[: max(0, width - 2)].rpartition(",")[0] + ",.."


def tail(text: str, width: int) -> str:
    """At most `width` cells from the end of the text, for paths."""
    return text if cell_len(text) <= width else "~" + text[-max(0, width - 1) :]


def clip(line: Line, width: int) -> Line:
    """The line in at most `width` cells; a `~` marks where it was cut."""
    if width_of(line) <= width:
        return line
    clipped: list[Span] = []
    room = width
    for text, tone in line:
        length = cell_len(text)
        if length >= room:
            # A `~` also where this span just fits: more text follows it.
            clipped.append((fit(text + "~", room), tone))
            break
        clipped.append((text, tone))
        room -= length
    return tuple(clipped)


def spread(left: Line, right: Line, width: int) -> Line:
    """`left` and `right` at the two ends of `width` cells; `left` is clipped to fit."""
    room = width - width_of(right)
    if room < 1:
        return clip(right, width)
    shown = clip(left, room - 1)
    return (*shown, (" " * (room - width_of(shown)), ""), *right)


def wrap(text: str, width: int, tone: str = "", first: Span = ("", "")) -> list[Line]:
    """`text` in lines of `width` cells after the label `first`; later lines are indented."""
    label, label_tone = first
    indent = cell_len(label)
    room = max(8, width - indent)
    # Folded ranks and paths are long words: they break only where they exceed the line.
    rows = textwrap.wrap(text, room, break_on_hyphens=False) or [""]
    lead: Line = ((label, label_tone),) if label else ()
    rest: Line = ((" " * indent, ""),) if label else ()
    return [(*(lead if n == 0 else rest), (row, tone)) for n, row in enumerate(rows)]


def word_rows(
    words: Iterable[WordLine], width: int, room: int = 0, *, indent: str = "", tone: str = "dim"
) -> list[Line]:
    """Each sentence, wrapped, after its subject; a sentence about ranks takes one line.

    `room` is the cells for subjects (0: each takes its own length), `tone` their tone.
    """
    rows: list[Line] = []
    for one in words:
        label = f"{indent}{one.subject:<{room}}" if room else f"{one.subject}  "
        if not one.ranks:
            rows += wrap(one.text, width, one.tone, (label, tone))
            continue
        head: Line = ((label, one.tone or tone), (f"{one.text}  ", one.tone))
        ranks = shorten_ranks(one.ranks, max(8, width - width_of(head)))
        rows.append((*head, (ranks, one.tone)))
    return rows


def flow(parts: Iterable[Line], width: int, indent: str = "", between: str = "   ") -> list[Line]:
    """Parts side by side in as many lines as they need; no part is broken."""
    rows: list[list[Line]] = []
    used = 0
    for part in parts:
        length = width_of(part)
        if not length:
            continue
        if rows and used + len(between) + length <= width:
            rows[-1].append(part)
            used += len(between) + length
        else:
            rows.append([part])
            used = len(indent) + length
    lead: Line = ((indent, ""),) if indent else ()
    return [clip((*lead, *join(row, between, "")), width) for row in rows]


def reflow(line: Line, width: int, indent: str = "") -> list[Line]:
    """A line made by `join`, in as many lines as it needs."""
    if width_of(line) <= width:
        return [line]
    if len(line) == 1:
        return wrap(line[0][0], width, line[0][1])
    parts: list[list[Span]] = [[]]
    between = ""
    for text, tone in line:
        if text.strip(" ") in ("", "·"):
            between = between or text
            parts.append([])
        else:
            parts[-1].append((text, tone))
    rows: list[list[Line]] = [[]]
    used = 0
    for part in map(tuple, parts):
        length = width_of(part)
        if rows[-1] and used + len(between) + length > width:
            rows.append([])
            used = len(indent)
        used += length + len(between) * bool(rows[-1])
        rows[-1].append(part)
    lines = [join(row, between, "dim") for row in rows]
    return [clip((*plain(indent if n else ""), *line), width) for n, line in enumerate(lines)]


def changed_columns(old: Line, new: Line) -> Sequence[tuple[int, int]]:
    """Where two lines differ, as (column, width) of each changed span."""
    found: list[tuple[int, int]] = []
    x = same = 0
    for before, after in zip(old, new, strict=False):
        text = after[0]
        width = len(text) if text.isascii() else cell_len(text)
        if before is not after and before != after:
            if cells(before[0]) != width:
                break
            found.append((x, width))
        x += width
        same += 1
    if rest := max(width_of(old[same:]), width_of(new[same:])):
        found.append((x, rest))
    return found

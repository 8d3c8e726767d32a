"""Who waits for whom, as a tree that folds: root causes are on top."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import ClassVar, Final

from textual.binding import Binding, BindingType

from frtop_probe.ring.rank_ranges import fold
from frtop_tui.diagnosis.model import Frame, JudgedRank, Trace, Why
from frtop_tui.job.naming import printable, rank_words
from frtop_tui.job.stack_frames import basename, user_frame
from frtop_tui.job.units import counted, duration
from frtop_tui.text.activity import blame_reasons, describe_activity_and_line
from frtop_tui.text.rank_words import format_exit
from frtop_tui.text.verdict import verdict_text
from frtop_tui.text.wait_boxes import Box, BoxKind, WaitBoxes, wait_boxes
from frtop_tui.text.wait_tree import Key, TreeRow, tree_rows
from frtop_tui.widgets.lines import LazyLines, LineView
from frtop_tui.widgets.spans import (
    Line,
    clip,
    join,
    plain,
    reflow,
    shorten_ranks,
    text_of,
    width_of,
    wrap,
)

NOBODY: Final = "nobody waits for anybody"
MOST: Final = 24
"""Lines of ranks that ended; later ends follow from the first."""
Row = tuple[tuple[int, ...], Line]
"""A line, and the ranks that it concerns."""


@dataclass(slots=True)
class _Ending:
    """Ranks that ended alike, by the operator's clock."""

    words: str
    first_ns: int
    last_ns: int
    ranks: list[int] = field(default_factory=list)


def rows_without_waits(frame: Frame, width: int) -> list[Row]:
    """The lines that replace the tree."""
    ended = sum(view.exit_info is not None for view in frame.ranks.values())
    ranks = counted(len(frame.ranks), "rank")
    head = f"{NOBODY} now: {ended:,} of {ranks} ended" if ended else NOBODY
    rows: list[Row] = [((), line) for line in wrap(head, width, "" if ended else "dim")]
    for verdict in frame.verdicts:
        said = verdict_text(verdict, frame)
        lines = wrap(said.headline, width, "strong", ("  ", ""))
        if why := said.fact("why"):
            lines += wrap(why, width, "", ("  why   ", "dim"))
        rows += [(verdict.culprits, line) for line in lines]
    endings = _endings(frame)
    first_ns = endings[0].first_ns if endings else 0
    for one in endings[:MOST]:
        rows += [(tuple(one.ranks), line) for line in _lines(one, first_ns, frame.now_ns, width)]
    if len(endings) > MOST:
        rows.append(((), plain(f"  and {len(endings) - MOST:,} more ways to end, later", "dim")))
    return rows + _standing(frame, width)


def _endings(frame: Frame) -> list[_Ending]:
    """Ranks that ended: culprits, then the others, the first ones first."""
    found: dict[str, _Ending] = {}
    blamed = {rank for verdict in frame.verdicts for rank in verdict.first_ranks}
    # A culprit leaves first, though its process may be gone after those that it left waiting.
    dated = sorted(
        (n not in blamed, _ended_ns(view), n) for n, view in frame.ranks.items() if view.exit_info
    )
    for _, at_ns, number in dated:
        words = _words(frame.ranks[number])
        one = found.setdefault(words, _Ending(words, at_ns, at_ns))
        one.last_ns = at_ns
        one.ranks.append(number)
    return list(found.values())


def _ended_ns(view: JudgedRank) -> int:
    """When its exception was raised, else when its process was gone."""
    ended = view.exit_info.at_ns if view.exit_info is not None else 0
    raised = view.exception.at_ns if view.exception is not None else ended
    return min(raised, ended) + view.clock_ns


def _words(view: JudgedRank) -> str:
    parts = []
    if view.exception is not None:
        error = view.exception
        where = f" at {basename(user_frame(error.frames))}" if error.frames else ""
        parts.append(f"{error.kind}: {error.text.partition(chr(10))[0]}"[:160] + where)
    if view.exit_info is not None:
        parts.append(format_exit(view.exit_info))
    return printable(", ".join(parts))


def _lines(one: _Ending, first_ns: int, now_ns: int, width: int) -> Sequence[Line]:
    who = rank_words(fold(one.ranks), 30)
    if one.first_ns == first_ns:
        when = f"first, {duration(max(0, now_ns - first_ns) / 1e9)} ago"
    else:
        apart = (one.first_ns - first_ns) / 1e9
        later = "later" if apart >= 0 else "before that process was gone"
        when = f"{duration(abs(apart))} {later}"
    if one.last_ns - one.first_ns >= 1_000_000_000:
        when += f", the last {duration((one.last_ns - first_ns) / 1e9)} after the first of all"
    parts = (plain(f"  {who}", "dead"), plain(one.words), plain(when, "dim"))
    return reflow(join(parts), width, "    ")


def _standing(frame: Frame, width: int) -> list[Row]:
    """What the living culprits do."""
    reasons = blame_reasons(frame)
    rows: list[Row] = []
    for number in reasons:
        view = frame.ranks.get(number)
        if view is None or view.exit_info is not None:
            continue
        doing = describe_activity_and_line(view, frame.now_ns, reasons)
        parts = (plain(f"  rank {number}", "late"), plain(view.state, view.state), plain(doing))
        rows += [((number,), line) for line in reflow(join(parts), width, "    ")]
        if len(rows) >= MOST:
            break
    return rows


MOST_NODES: Final = 4096
_TONES: Final[dict[BoxKind, str]] = {
    "waits": "",
    "free": "late",
    "between": "",
    "ended": "dead",
    "unobserved": "unreachable",
    "differs": "late",
}


def row_line(row: TreeRow, reasons: Mapping[int, Why], width: int) -> Line:
    """One line of the tree: what it is, how many ranks, since when, which."""
    mark = {True: "+ ", False: "- ", None: "  "}[row.folded]
    if row.kind == "left out":
        return plain(f"  and {counted(row.count, 'more op')} with waiting ranks", "dim")
    if row.kind == "more":
        return ((row.lead, "dim"), (f"+ {row.count:,} more that wait for it", "dim"))
    box = row.box
    assert box is not None
    head: Line
    if box.kind == "waits":
        head = ((row.lead, "dim"), (mark, "key"), (box.title, "strong" if box.overdue else ""))
        several = "wait" if row.count != 1 else "waits"
        head = (*head, (f"  {row.count:,} {several}", ""))
        if box.seconds is not None:
            head = (*head, (f" {duration(box.seconds)}", "warn" if box.overdue else "dim"))
    else:
        cause = cause_of(box, reasons)
        who = (rank_words(box.ranks, 30), "alarm" if cause else _TONES[box.kind])
        why = box.title if box.kind == "differs" else cause or box.title
        head = ((row.lead, "dim"), (mark, "key"), who, (f"  {why}", ""))
    if row.kind == "closes":
        return clip((*head, ("  the same again: ", "bad"), ("a deadlock", "bad")), width)
    if row.kind == "again":
        return clip((*head, ("  as above", "dim")), width)
    if box.kind != "waits":
        return clip(head, width)
    ends = "" if row.folded is not None or row.lead else "  all members have entered"
    room = max(6, width - width_of(head) - len(ends) - 2)
    return clip((*head, (f"  {shorten_ranks(box.ranks, room)}{ends}", "dim")), width)


def cause_of(box: Box, reasons: Mapping[int, Why]) -> str:
    """Why a verdict blames the ranks of a box; "" if none does."""
    first = box.ranks.partition(",")[0].partition("-")[0]
    why = reasons.get(int(first)) if first.isdigit() else None
    if why is None:
        return ""
    layer = "" if why.layer == "unknown" else f"{why.layer}: "
    return layer + why.text


MOST_CUT: Final = 2


def note_of(frame: Frame, rows: Iterable[TreeRow], width: int) -> list[Line]:
    """What one needs above the tree: causes that its lines cut, and what it is worth."""
    found = [one for one in frame.verdicts if one.kind == "slow"]
    if not found:
        return _cut_causes(rows, blame_reasons(frame), width)
    ranks = sorted({rank for one in found for rank in chain(one.culprits, *one.parties)})
    who = rank_words(fold(ranks), 30)
    text = (
        "The waits below are those of this moment, in a job that makes progress: the ranks on top"
        " need not be the ones that arrive late step after step."
    )
    return wrap(f"slow · {found[0].confidence}: {who}. {text}", width, "warn")


def _cut_causes(rows: Iterable[TreeRow], reasons: Mapping[int, Why], width: int) -> list[Line]:
    """The first causes that do not fit in their lines."""
    found: list[Line] = []
    for row in rows:
        if row.kind != "box" or row.box is None or row.box.kind in ("waits", "differs"):
            continue
        cause = cause_of(row.box, reasons)
        if cause and not text_of(row_line(row, reasons, width)).endswith(cause):
            found += wrap(cause, width, "", (f"{rank_words(row.box.ranks, 30)}  ", "alarm"))
            if len(found) >= MOST_CUT:
                break
    return found


class WaitsNote(LineView, can_focus=False):
    """A note above the tree; hidden if there is nothing to say."""

    def __init__(self) -> None:
        super().__init__(id="waits-note")
        self.frame: Frame | None = None
        self.rows: Sequence[TreeRow] = ()

    def show(self, frame: Frame, rows: Sequence[TreeRow]) -> None:
        """`rows` are those of the tree below."""
        self.frame, self.rows = frame, rows
        self.display = bool(note_of(frame, rows, self.app.size.width - 2))
        self.redraw()

    def content(self, width: int) -> Sequence[Line]:
        return note_of(self.frame, self.rows, width) if self.frame is not None else ()


class WaitTreePane(LineView):
    """Folds with left and right; enter goes to the rank, or to the ranks of a line."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "enter",
            "choose",
            "open",
            tooltip="show the rank, or list the ranks of the line",
            id="waits.open",
        ),
        Binding(
            "right,l,plus", "fold(False)", "unfold", tooltip="show what is in it", id="waits.unfold"
        ),
        Binding(
            "left,h,minus", "fold(True)", "fold", tooltip="hide what is in it", id="waits.fold"
        ),
        Binding(
            "space", "fold_or_unfold", "fold", show=False, tooltip="fold or unfold", id="waits.both"
        ),
    ]

    def __init__(self) -> None:
        super().__init__(id="waits", classes="pane", has_cursor=True)
        self.entitle("who waits for whom")
        self.empty = ""
        self.rows: Sequence[TreeRow] = ()
        self._graph = WaitBoxes()
        self._of: Trace | None = None
        self._toggled: set[Key] = set()
        self._reasons: Mapping[int, Why] = {}
        self._frame: Frame | None = None
        self._instead: Sequence[Row] = ()

    def show(self, frame: Frame) -> None:
        self._frame = frame if frame.trace is not None else None
        if frame.trace is not self._of:
            self._of = frame.trace
            self._graph = WaitBoxes()
            if frame.trace is not None:
                self._graph = wait_boxes(frame.trace, MOST_NODES)
        self._reasons = blame_reasons(frame)
        self._grow()

    def _grow(self) -> None:
        """Builds the lines again; the cursor stays on its line."""
        chosen = self.chosen
        self.rows = tree_rows(self._graph, self._toggled)
        self.redraw()
        if chosen is not None:
            places = (n for n, row in enumerate(self.rows) if row.key == chosen.key)
            self.move_to(next(places, self.cursor))

    @property
    def chosen(self) -> TreeRow | None:
        return self.rows[self.cursor] if self.cursor < len(self.rows) else None

    @property
    def ranks(self) -> Sequence[int]:
        """The ranks of the cursor's line, if there is no graph."""
        here = self._instead[self.cursor : self.cursor + 1] if not self.rows else ()
        return here[0][0] if here else ()

    def content(self, width: int) -> Sequence[Line]:
        if not self.rows and self._frame is not None:
            self._instead = rows_without_waits(self._frame, width)
            return [line for _, line in self._instead]
        if not self.rows:
            return (plain(self.empty, "dim"),)
        rows, reasons = self.rows, self._reasons
        return LazyLines(rows.__len__, lambda y: row_line(rows[y], reasons, width))

    def action_fold(self, fold: bool) -> None:
        row = self.chosen
        if row is not None and row.folded is not None and row.folded != fold:
            self.action_fold_or_unfold()

    def action_fold_or_unfold(self) -> None:
        row = self.chosen
        if row is not None and row.folded is not None:
            self._toggled ^= {row.key}
            self._grow()

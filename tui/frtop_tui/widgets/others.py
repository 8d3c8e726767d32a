"""Where all the other ranks are, in classes: the crowd against which one stands out."""

from __future__ import annotations

from collections.abc import Sequence

from frtop_probe.ring.rank_ranges import fold
from frtop_tui.diagnosis.judged import Frame, JudgedRank
from frtop_tui.job.model import RankState
from frtop_tui.widgets.lines import LineView
from frtop_tui.widgets.spans import Line, plain, wrap
from frtop_tui.widgets.wording import URGENCY, cut, ending, group_of, kind, number, ranks_word, site


def standing(rank: JudgedRank) -> str:
    """What ranks must share to be of one class."""
    op = rank.blocked_on
    if rank.exit_info is not None:
        return ending(rank.exit_info)
    if op is None:
        return rank.state
    return " ".join(filter(None, (kind(op), number(op), group_of(rank, op), site(op.site))))


def _alike(rank: JudgedRank) -> tuple[object, ...]:
    """The same as `standing` without its words, which cost ten times as much."""
    op = rank.blocked_on
    if op is None or rank.exit_info is not None:
        return (rank.state, rank.exit_info and standing(rank))
    group = rank.groups.get(op.group)
    line = None if op.site is None else (op.site.file, op.site.line)
    what = None if op.signature is None else op.signature.kind
    return (rank.state, op.number, group and group.name, line, what)


def classes(frame: Frame, besides: int) -> list[tuple[RankState, str, list[int]]]:
    """(posture, what they do, ranks) of all ranks but one, the largest class first."""
    found: dict[tuple[object, ...], list[int]] = {}
    for rank in frame.ranks.values():
        if rank.rank != besides:
            found.setdefault(_alike(rank), []).append(rank.rank)
    rows = [(frame.ranks[ranks[0]], ranks) for ranks in found.values()]
    rows.sort(key=lambda row: (-len(row[1]), URGENCY[row[0].state]))
    return [(first.state, standing(first), ranks) for first, ranks in rows]


def words_of(posture: RankState, what: str) -> str:
    """A class in words: `blocked in all_reduce #8812 dp:0 train.py:231`."""
    if what == posture:
        return what
    return f"{posture}, {what}" if posture in ("dead", "done") else f"{posture} in {what}"


class OthersPane(LineView):
    """One line per class of the other ranks."""

    def __init__(self) -> None:
        super().__init__(id="others", classes="pane")
        self.entitle("the other ranks")
        self.frame: Frame | None = None
        self.besides = -1

    def show(self, frame: Frame, rank: JudgedRank) -> None:
        self.frame, self.besides = frame, rank.rank
        self.redraw()

    def content(self, width: int) -> Sequence[Line]:
        if self.frame is None:
            return ()
        rows: list[Line] = []
        found = classes(self.frame, self.besides)
        height, seen = self.scrollable_content_region.height, 0
        for posture, what, ranks in found:
            seen += len(rows) < height
            head = f"{ranks_word(len(ranks))}: "
            words = words_of(posture, what)
            who = cut(fold(ranks), max(width - len(head) - 2, 12))
            rows += wrap(f"{words}  {who}", width, "", (head, "strong"))
        more = len(found) - seen
        self.entitle("the other ranks" + (f", +{more} more" if more else ""))
        return rows or [plain("no other ranks heard", "dim")]

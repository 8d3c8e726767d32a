"""Where all other ranks are, grouped by op, compared with one rank."""

from __future__ import annotations

from collections.abc import Sequence

from frtop_probe.ring.rank_ranges import fold
from frtop_tui.diagnosis.model import Frame, JudgedRank
from frtop_tui.job.model import RankState
from frtop_tui.job.stack_frames import site_name
from frtop_tui.job.units import counted
from frtop_tui.text.rank_states import URGENCY
from frtop_tui.text.rank_words import format_exit, op_name
from frtop_tui.widgets.lines import LineView
from frtop_tui.widgets.spans import Line, plain, shorten_ranks, wrap


def describe_position(rank: JudgedRank) -> str:
    """The op the rank is blocked in, else how it ended, else its state."""
    op = rank.blocked_on
    if rank.exit_info is not None:
        return format_exit(rank.exit_info)
    if op is None:
        return rank.state
    return " ".join(filter(None, (op_name(rank, op), site_name(op.site))))


def _position_key(rank: JudgedRank) -> tuple[object, ...]:
    """Equal where `describe_position` is equal, for a tenth of its cost."""
    op = rank.blocked_on
    if op is None or rank.exit_info is not None:
        return (rank.state, rank.exit_info and describe_position(rank))
    group = rank.groups.get(op.group)
    line = None if op.site is None else (op.site.file, op.site.line)
    kind = None if op.signature is None else op.signature.kind
    return (rank.state, op.number, group and group.name, line, kind)


def rank_classes(frame: Frame, excluded: int) -> list[tuple[RankState, str, list[int]]]:
    """(state, position, ranks) of all ranks but one, the largest class first."""
    found: dict[tuple[object, ...], list[int]] = {}
    for rank in frame.ranks.values():
        if rank.rank != excluded:
            found.setdefault(_position_key(rank), []).append(rank.rank)
    rows = [(frame.ranks[ranks[0]], ranks) for ranks in found.values()]
    rows.sort(key=lambda row: (-len(row[1]), URGENCY[row[0].state]))
    return [(first.state, describe_position(first), ranks) for first, ranks in rows]


def describe_class(state: RankState, position: str) -> str:
    """`blocked in all_reduce #8812 dp:0 train.py:231`."""
    if position == state:
        return position
    return f"{state}, {position}" if state in ("dead", "done") else f"{state} in {position}"


class OtherRanksPane(LineView):
    """One line per class of the other ranks."""

    def __init__(self) -> None:
        super().__init__(id="other-ranks", classes="pane")
        self.entitle("other ranks")
        self.frame: Frame | None = None
        self.excluded = -1

    def show(self, frame: Frame, rank: JudgedRank) -> None:
        self.frame, self.excluded = frame, rank.rank
        self.redraw()

    def content(self, width: int) -> Sequence[Line]:
        if self.frame is None:
            return ()
        rows: list[Line] = []
        found = rank_classes(self.frame, self.excluded)
        height, visible = self.scrollable_content_region.height, 0
        for state, position, ranks in found:
            visible += len(rows) < height
            head = f"{counted(len(ranks), 'rank')}: "
            words = describe_class(state, position)
            folded = shorten_ranks(fold(ranks), max(width - len(head) - 2, 12))
            rows += wrap(f"{words}  {folded}", width, "", (head, "strong"))
        more = len(found) - visible
        self.entitle("other ranks" + (f", +{more} more" if more else ""))
        return rows or [plain("no other ranks", "dim")]

"""Where all the other ranks are, in classes: the crowd against which one stands out."""

from __future__ import annotations

from collections.abc import Sequence

from frtop_probe.ring.fold import fold
from frtop_tui.job.model import Frame, RankView
from frtop_tui.widgets.lines import LineView
from frtop_tui.widgets.spans import Line, plain, wrap
from frtop_tui.widgets.wording import URGENCY, cut, group_of, kind, number, ranks_word, site


def standing(rank: RankView) -> str:
    """What ranks must share to be of one class."""
    op = rank.blocked_on
    if op is None:
        return rank.posture
    return " ".join(filter(None, (kind(op), number(op), group_of(rank, op), site(op.site))))


def classes(frame: Frame, besides: int) -> list[tuple[str, str, list[int]]]:
    """(posture, what they do, ranks) of all ranks but one, the largest class first."""
    found: dict[tuple[str, str], list[int]] = {}
    for rank in frame.ranks.values():
        if rank.rank != besides:
            found.setdefault((rank.posture, standing(rank)), []).append(rank.rank)
    ordered = sorted(
        found.items(),
        key=lambda item: (-len(item[1]), URGENCY[item[0][0]]),  # type: ignore[index]
    )
    return [(posture, what, ranks) for (posture, what), ranks in ordered]


class OthersPane(LineView):
    """One line per class of the other ranks."""

    def __init__(self) -> None:
        super().__init__(id="others", classes="pane")
        self.entitle("the other ranks")
        self.frame: Frame | None = None
        self.besides = -1

    def show(self, frame: Frame, rank: RankView) -> None:
        self.frame, self.besides = frame, rank.rank
        self.redraw()

    def content(self, width: int) -> Sequence[Line]:
        if self.frame is None:
            return ()
        rows: list[Line] = []
        for posture, what, ranks in classes(self.frame, self.besides):
            head = f"{ranks_word(len(ranks))}: "
            words = what if what == posture else f"{posture} in {what}"
            who = cut(fold(ranks), max(width - len(head) - 2, 12))
            rows += wrap(f"{words}  {who}", width, "", (head, "strong"))
        return rows or [plain("no other ranks heard", "dim")]

"""The pane with the risk of asking NCCL's RAS, and with its answer."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from frtop_probe import wire
from frtop_tui.diagnosis.model import Frame, JudgedRank
from frtop_tui.ras.risk import risk_lines
from frtop_tui.ras.text import answer_lines
from frtop_tui.widgets.formats import format_age_coarse
from frtop_tui.widgets.lines import LineView
from frtop_tui.widgets.spans import Line, plain, wrap

ASK: Final = "R asks now, once; esc leaves without asking"
AGAIN: Final = "R shows the risk of asking again"
_INDENT: Final = re.compile(r" *(?:\S+(?: \S+)? {2,})?")


class RasPane(LineView):
    """Scrolls through lines of text: the answer, what is under way, the risk."""

    def __init__(self) -> None:
        super().__init__(id="ras", classes="pane")
        self.entitle("NCCL's RAS")
        self.frame: Frame | None = None
        self.rank: JudgedRank | None = None
        self.look: wire.RasResponse | None = None
        self.doing = ""
        self.unavailable = ""
        """Why RAS cannot be asked now."""

    def show(
        self,
        frame: Frame,
        rank: JudgedRank,
        look: wire.RasResponse | None,
        doing: str,
        unavailable: str,
    ) -> None:
        """Shows the last answer, and the risk by a `look` that may be followed by asking."""
        self.frame, self.rank, self.look = frame, rank, look
        self.doing, self.unavailable = doing, unavailable
        title = f"NCCL's RAS, through rank {rank.rank}"
        if rank.ras is not None and rank.ras.at_ns:
            title += f": answer {format_age_coarse(rank.age_s(rank.ras.at_ns, frame.now_ns))} old"
        self.entitle(title)
        self.redraw()

    def content(self, width: int) -> Sequence[Line]:
        rank, frame = self.rank, self.frame
        if rank is None or frame is None:
            return ()
        rows: list[Line] = []
        if rank.ras is not None:
            tone = "" if rank.ras.report is not None else "warn"
            rows += [*_wrapped(answer_lines(frame, rank, rank.ras), width, tone), ()]
        look = self.look
        if self.unavailable:
            rows += wrap(self.unavailable, width, "warn")
        elif self.doing:
            rows += wrap(self.doing, width, "dim")
        elif look is not None and look.error:
            message, _, step = look.help.partition("; ")
            rows += wrap(f"RAS is not asked: {message or look.error}", width, "warn")
            rows += wrap(step, width, "", ("next  ", "dim")) if step else []
        elif look is not None:
            first, *more = risk_lines(rank, look)
            rows += [*wrap(first, width, "bad"), *_wrapped(more, width)]
            rows += [(), *wrap(ASK, width, "strong")]
        elif rank.ras is not None:
            rows += wrap(AGAIN, width, "dim")
        return rows or [plain("nothing was asked", "dim")]


def _wrapped(lines: Iterable[str], width: int, tone: str = "") -> list[Line]:
    """Lines that go on below where their own text begins."""
    rows: list[Line] = []
    for line in lines:
        found = _INDENT.match(line)
        lead = found[0] if found is not None and len(found[0]) < width // 2 else ""
        rows += wrap(line[len(lead) :], width, tone, (lead, tone)) if line else [()]
    return rows

"""The pane of a rank's tensors: its pending ops, one of them under the cursor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from frtop_probe import wire
from frtop_tui.diagnosis.model import Frame, JudgedRank
from frtop_tui.widgets.lines import LineView
from frtop_tui.widgets.spans import Line, plain, wrap
from frtop_tui.widgets.tensor_lines import error_lines, op_lines
from frtop_tui.widgets.wording import calm

LATE_S: Final = 3.0
"""A rank that cannot answer says so within two seconds: more than that is odd."""


def waiting_lines(rank: int, seconds: float, width: int) -> list[Line]:
    """What is shown until there is an answer."""
    words = f"asked {calm(seconds)} ago, waiting for its answer"
    tone = "dim"
    if seconds > LATE_S:
        tone = "warn"
        words += "; it is due within two seconds: is its host heard (3)? t asks again"
    return wrap(words, width, tone, (f"rank {rank}  ", "strong"))


class TensorsPane(LineView):
    """The cursor goes over lines; the op they belong to is the one that is chosen."""

    def __init__(self) -> None:
        super().__init__(id="tensors", classes="pane", has_cursor=True)
        self.entitle("tensors")
        self.frame: Frame | None = None
        self.rank: JudgedRank | None = None
        self.waiting_s: float | None = None
        self.absent = ""
        """Why there is nothing to show and nothing to come."""
        self.instead: int | None = None
        """Who was meant, and has no tensors: this rank waits for it."""
        self._ops: list[wire.OpTensors | None] = []

    def show(self, frame: Frame, rank: JudgedRank, waiting_s: float | None, absent: str) -> None:
        """Shows what the rank last said, and that it was asked `waiting_s` ago."""
        self.frame, self.rank, self.waiting_s, self.absent = frame, rank, waiting_s, absent
        answer = rank.tensors
        title = f"tensors of the pending ops of rank {rank.rank}"
        if self.instead is not None:
            title = f"tensors of rank {rank.rank}, which waits for rank {self.instead}"
        if answer is not None and answer.ops:
            title += f", as of {calm(rank.age_s(answer.at_ns, frame.now_ns))} ago"
        self.entitle(title)
        self.redraw()

    @property
    def chosen(self) -> wire.OpTensors | None:
        """The op under the cursor."""
        return self._ops[self.cursor] if self.cursor < len(self._ops) else None

    def content(self, width: int) -> Sequence[Line]:
        self._ops = []
        rank, frame = self.rank, self.frame
        if rank is None or frame is None:
            return ()
        rows: list[Line] = []
        answer = rank.tensors
        if self.instead is not None:
            words = f"has nothing pending that has tensors; shown is rank {rank.rank}, which waits"
            rows += wrap(
                f"{words} for it (n: the next)", width, "", (f"rank {self.instead}  ", "dim")
            )
        if self.waiting_s is not None:
            rows += waiting_lines(rank.rank, self.waiting_s, width)
        elif answer is not None:
            rows += error_lines(answer, rank.rank, width)
        elif self.absent:
            rows += wrap(self.absent, width, "warn")
        ops = answer.ops if answer is not None else ()
        if answer is not None and not ops and not answer.error and self.waiting_s is None:
            rows.append(plain("no op is pending, so there are no tensors to look into"))
        # A line above the first op belongs to it: T finds something to save at once.
        self._ops = [ops[0] if ops else None] * len(rows)
        for op in ops:
            lines = [*([()] if rows else []), *op_lines(frame, rank, op, width)]
            rows += lines
            self._ops += [op] * len(lines)
        return rows

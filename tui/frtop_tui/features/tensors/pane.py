"""The pane with the tensors of a rank's pending ops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from frtop_probe import wire
from frtop_tui.diagnosis.model import Frame, JudgedRank
from frtop_tui.features.tensors.words import error_lines, op_lines
from frtop_tui.job.units import live_duration
from frtop_tui.widgets.lines import LineView
from frtop_tui.widgets.spans import Line, plain, wrap

OVERDUE_S: Final = 3.0
"""A rank, or its agent, answers within two seconds."""


def waiting_lines(rank: int, seconds: float, width: int, no_answer: str = "") -> list[Line]:
    """Shown until the rank answers; `no_answer`: why that will not be shown."""
    if no_answer:
        return wrap(no_answer, width, "warn", (f"rank {rank}  ", "strong"))
    words = f"asked {live_duration(seconds)} ago, no answer yet"
    tone = "dim"
    if seconds > OVERDUE_S:
        tone = "warn"
        words += "; a rank answers within two seconds. Is its host reporting (3)? t asks again"
    return wrap(words, width, tone, (f"rank {rank}  ", "strong"))


class TensorsPane(LineView):
    """The cursor moves by line; the op of its line is the chosen one."""

    def __init__(self) -> None:
        super().__init__(id="tensors", classes="pane", has_cursor=True)
        self.entitle("tensors")
        self.frame: Frame | None = None
        self.rank: JudgedRank | None = None
        self.waiting_s: float | None = None
        self.unavailable = ""
        """Why there are no tensors and no answer will come."""
        self.no_answer = ""
        """Why an answer that is waited for will not be shown."""
        self.instead_of: int | None = None
        """The rank that was asked for, which has no tensors: this rank waits for it."""
        self._ops: list[wire.OpTensors | None] = []

    def show(
        self, frame: Frame, rank: JudgedRank, waiting_s: float | None, unavailable: str
    ) -> None:
        """Shows the rank's last answer, and how long ago it was asked for a new one."""
        self.frame, self.rank = frame, rank
        self.waiting_s, self.unavailable = waiting_s, unavailable
        answer = rank.tensors
        title = f"tensors of the pending ops of rank {rank.rank}"
        if self.instead_of is not None:
            title = f"tensors of rank {rank.rank}, which waits for rank {self.instead_of}"
        if answer is not None and answer.ops:
            title += f", {live_duration(rank.age_s(answer.at_ns, frame.now_ns))} old"
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
        if self.instead_of is not None:
            words = f"has no pending tensors; this is rank {rank.rank}, which waits for it"
            rows += wrap(f"{words} (n: next rank)", width, "", (f"rank {self.instead_of}  ", "dim"))
        if self.waiting_s is not None:
            rows += waiting_lines(rank.rank, self.waiting_s, width, self.no_answer)
        elif answer is not None:
            rows += error_lines(answer, rank.rank, width)
        elif self.unavailable:
            rows += wrap(self.unavailable, width, "warn")
        ops = answer.ops if answer is not None else ()
        if answer is not None and not ops and not answer.error and self.waiting_s is None:
            rows.append(plain("no op is pending, so there are no tensors"))
        # Lines above the first op belong to it: T finds something to save at once.
        self._ops = [ops[0] if ops else None] * len(rows)
        for op in ops:
            lines = [*([()] if rows else []), *op_lines(frame, rank, op, width)]
            rows += lines
            self._ops += [op] * len(lines)
        return rows

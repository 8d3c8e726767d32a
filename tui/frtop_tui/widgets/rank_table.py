"""Ranks as rows: what a rank is doing, since when, and how it is as a process."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from textual.binding import Binding, BindingType

from frtop_probe import wire
from frtop_tui.job.model import Frame, RankView
from frtop_tui.widgets.rank_grid import natural, short_hosts
from frtop_tui.widgets.spans import Span
from frtop_tui.widgets.table import Column, LineTable
from frtop_tui.widgets.wording import LETTERS, URGENCY, age, inside, site


@dataclass(frozen=True, slots=True)
class Row:
    """A rank at the moment of a frame; ages are counted from there."""

    rank: RankView
    now_ns: int
    host: str

    @property
    def since_s(self) -> float:
        return max(0.0, (self.now_ns - self.rank.posture_since_ns) / 1e9)

    @property
    def beat_s(self) -> float:
        present = self.rank.present
        return -1.0 if present is None else self.rank.age_s(present.beat_ns, self.now_ns)


def cpu_share(look: wire.Look | None, prior: wire.Look | None, pid: int) -> float | None:
    """CPUs used between two looks (1.0: one core busy), None when not seen twice."""
    if look is None or prior is None or look.at_ns <= prior.at_ns:
        return None
    after = next((process for process in look.processes if process.pid == pid), None)
    before = next((process for process in prior.processes if process.pid == pid), None)
    if after is None or before is None:
        return None
    return max(0, after.cpu_ns - before.cpu_ns) / (look.at_ns - prior.at_ns)


def _rank(row: Row, marked: Collection[int]) -> Span:
    is_marked = row.rank.rank in marked
    return (f"{'*' if is_marked else ''}{row.rank.rank}", "mark" if is_marked else "strong")


def _posture(row: Row) -> Span:
    posture = row.rank.posture
    return (f"{LETTERS[posture]} {posture}", posture)


def _where(row: Row) -> Span:
    op = row.rank.blocked_on
    return (site(op.site) if op is not None else "", "dim")


def _process(row: Row) -> Span:
    process = row.rank.process
    return (process.state if process is not None else "", "")


def _cpu(row: Row) -> Span:
    share = cpu_share(row.rank.look, row.rank.prior_look, row.rank.identity.pid)
    return ("" if share is None else f"{share:.0%}", "dim")


def _beat(row: Row) -> Span:
    if row.beat_s < 0:
        return ("", "")
    return (age(row.beat_s), "silent" if row.rank.posture == "silent" else "dim")


def _step(row: Row) -> int:
    return row.rank.present.step if row.rank.present is not None else 0


def columns(marked: Collection[int]) -> list[Column[Row]]:
    """Essential ones first; those with `needs` wait for a wider terminal."""
    return [
        Column("rank", 6, partial(_rank, marked=marked), lambda r: r.rank.rank, right=True),
        Column("posture", 9, _posture, lambda r: (URGENCY[r.rank.posture], r.rank.rank)),
        Column(
            "for",
            6,
            lambda r: (age(r.since_s), ""),
            lambda r: (-r.since_s, r.rank.rank),
            right=True,
        ),
        Column("host", 8, lambda r: (r.host, ""), lambda r: (natural(r.rank.host), r.rank.rank)),
        Column(
            "waits in, or does",
            0,
            lambda r: (inside(r.rank, r.now_ns), ""),
            lambda r: (inside(r.rank, r.now_ns), r.rank.rank),
        ),
        Column("line", 18, _where, lambda r: (_where(r)[0], r.rank.rank), needs=110),
        Column(
            "step",
            8,
            lambda r: (str(_step(r) or ""), ""),
            lambda r: (_step(r), r.rank.rank),
            right=True,
            needs=90,
        ),
        Column("beat", 5, _beat, lambda r: (-r.beat_s, r.rank.rank), right=True),
        Column(
            "pid",
            8,
            lambda r: (str(r.rank.identity.pid), "dim"),
            lambda r: (r.rank.identity.pid, r.rank.rank),
            right=True,
            needs=100,
        ),
        Column("proc", 4, _process, lambda r: (_process(r)[0], r.rank.rank), needs=110),
        Column("cpu", 5, _cpu, lambda r: (_cpu(r)[0], r.rank.rank), right=True, needs=120),
    ]


def rows_of(frame: Frame, ranks: Iterable[RankView]) -> list[Row]:
    """Rows of these ranks, in their order."""
    names = short_hosts(sorted({rank.host for rank in frame.ranks.values()}))
    return [Row(rank, frame.now_ns, names[rank.host]) for rank in ranks]


def of_interest(frame: Frame, most: int) -> Sequence[Row]:
    """The ranks to look at first, for where there is no room for all."""
    ranks = sorted(frame.ranks.values(), key=lambda rank: (URGENCY[rank.posture], rank.rank))
    return rows_of(frame, ranks[:most])


class RankTable(LineTable[Row]):
    """Rows of ranks; marks are shown with a star."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "choose", "look at rank", tooltip="queue, stack, process", id="rank.open"),
        Binding("space", "mark", "mark", tooltip="mark a rank for stacks", id="rank.mark"),
    ]

    def __init__(self, marked: set[int], **keywords: str | None) -> None:
        super().__init__(columns(marked), "no ranks", **keywords)
        self.marked = marked

    def action_mark(self) -> None:
        if self.chosen is not None:
            self.marked ^= {self.chosen.rank.rank}
            self.action_down()
            self.redraw()

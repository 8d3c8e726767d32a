"""Ranks as rows: what a rank is doing, since when, and how it is as a process."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from typing import ClassVar

from textual.binding import Binding, BindingType

from frtop_probe import wire
from frtop_tui.diagnosis.model import Frame, JudgedRank, Why
from frtop_tui.widgets.doing import blamed, causes, doing, doing_at, line_of
from frtop_tui.widgets.grid_layout import natural, short_hosts
from frtop_tui.widgets.spans import Line, Span
from frtop_tui.widgets.table import Column, LineTable
from frtop_tui.widgets.wording import LETTERS, URGENCY, calm

LINE_NEEDS = 110
"""Cells from which the line of code has a column of its own."""


@dataclass(slots=True)
class Moment:
    """What a row needs beside its rank: the time, short hosts, what verdicts say of it."""

    now_ns: int = 0
    names: Mapping[str, str] = field(default_factory=dict)
    causes: Mapping[int, Why] = field(default_factory=dict)
    blamed: Mapping[int, int] = field(default_factory=dict)
    lined: bool = False
    """Whether the line of code is in sight in a column of its own."""

    def take(self, frame: Frame) -> None:
        self.now_ns = frame.now_ns
        self.causes, self.blamed = causes(frame), blamed(frame)

    def interest(self, rank: JudgedRank) -> tuple[int, int]:
        """Culprits first, in the order of their verdicts, then by posture."""
        return (self.blamed.get(rank.rank, len(URGENCY)), URGENCY[rank.state])

    def doing(self, rank: JudgedRank) -> str:
        words = doing if self.lined else doing_at
        return words(rank, self.now_ns, self.causes)

    def since_s(self, rank: JudgedRank) -> float:
        return max(0.0, (self.now_ns - rank.state_since_ns) / 1e9)

    def beat_s(self, rank: JudgedRank) -> float:
        present = rank.status
        return -1.0 if present is None else rank.age_s(present.beat_ns, self.now_ns)


def cpu_share(look: wire.Snapshot | None, prior: wire.Snapshot | None, pid: int) -> float | None:
    """CPUs used between two looks (1.0: one core busy), None when not seen twice."""
    if look is None or prior is None or look.at_ns <= prior.at_ns:
        return None
    after = next((process for process in look.processes if process.pid == pid), None)
    before = next((process for process in prior.processes if process.pid == pid), None)
    if after is None or before is None:
        return None
    return max(0, after.cpu_ns - before.cpu_ns) / (look.at_ns - prior.at_ns)


def _rank(rank: JudgedRank, marked: Collection[int]) -> Span:
    is_marked = rank.rank in marked
    return (f"{'*' if is_marked else ''}{rank.rank}", "mark" if is_marked else "strong")


def _posture(rank: JudgedRank) -> Span:
    return (f"{LETTERS[rank.state]} {rank.state}", rank.state)


def _where(rank: JudgedRank) -> Span:
    return (line_of(rank), "dim")


def _process(rank: JudgedRank) -> Span:
    # What was last seen of a process that is gone is no state of it.
    if rank.process is None or rank.exit_info is not None:
        return ("", "")
    return (rank.process.state, "")


def _share(rank: JudgedRank) -> float:
    share = cpu_share(rank.snapshot, rank.prior_snapshot, rank.identity.pid)
    return -1.0 if share is None else share


def _cpu(rank: JudgedRank) -> Span:
    share = _share(rank)
    return ("" if share < 0 else f"{share:.0%}", "dim")


def _step(rank: JudgedRank) -> int:
    return rank.status.step if rank.status is not None else 0


def _beat(rank: JudgedRank, moment: Moment) -> Span:
    seconds = moment.beat_s(rank)
    if seconds < 0:
        return ("", "")
    return (calm(seconds), rank.state if rank.state in ("silent", "stopped") else "dim")


def columns(marked: Collection[int], at: Moment) -> list[Column[JudgedRank]]:
    """Essential ones first; those with `needs` wait for a wider terminal.

    Rows come by rank and sorting is stable, so no key has to name the rank as well.
    """
    return [
        Column("rank", 6, partial(_rank, marked=marked), lambda r: r.rank, right=True),
        Column("posture", 9, _posture, at.interest),
        Column("for", 6, lambda r: (calm(at.since_s(r)), ""), lambda r: -at.since_s(r), right=True),
        Column("host", 8, lambda r: (at.names[r.host], ""), lambda r: natural(r.host), wide=16),
        Column("waits in, or does", 0, lambda r: (at.doing(r), ""), at.doing),
        Column("line", 18, _where, lambda r: _where(r)[0], needs=LINE_NEEDS),
        Column("step", 8, lambda r: (str(_step(r) or ""), ""), _step, right=True, needs=90),
        Column("beat", 5, partial(_beat, moment=at), lambda r: -at.beat_s(r), right=True),
        Column(
            "pid",
            8,
            lambda r: (str(r.identity.pid or ""), "dim"),
            lambda r: r.identity.pid,
            right=True,
            needs=100,
        ),
        Column("proc", 4, _process, lambda r: _process(r)[0], needs=110),
        Column("cpu", 5, _cpu, lambda r: -_share(r), right=True, needs=120),
    ]


def of_interest(frame: Frame, most: int) -> list[JudgedRank]:
    """The ranks to look at first, for where there is no room for all."""
    first = blamed(frame)
    found: dict[str, list[JudgedRank]] = {posture: [] for posture in URGENCY}
    for rank in frame.ranks.values():
        if rank.rank not in first:
            found[rank.state].append(rank)
    culprits = (frame.ranks[rank] for rank in first if rank in frame.ranks)
    return list(islice(chain(culprits, *found.values()), most))


class RankTable(LineTable[JudgedRank]):
    """Rows of ranks; marks are shown with a star. The cursor stays on its rank."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "enter", "choose", "look", tooltip="queue, stack, process of a rank", id="rank.open"
        ),
        Binding("space", "mark", "mark", tooltip="mark a rank for stacks", id="rank.mark"),
    ]

    def __init__(self, marked: set[int], **keywords: str | None) -> None:
        self.at = Moment()
        super().__init__(columns(marked, self.at), "no ranks", **keywords)
        self.marked = marked

    def show_ranks(self, frame: Frame, ranks: Sequence[JudgedRank]) -> None:
        """Shows these ranks in this order, at the moment of the frame."""
        self.at.take(frame)
        hosts = {rank.host for rank in frame.ranks.values()}
        if hosts != self.at.names.keys():
            self.at.names = short_hosts(sorted(hosts))
        stays = self.chosen if self.cursor > 1 else None
        self.rows = ranks
        if stays is not None:
            # Rows move as ranks change; `enter` must open the rank one has chosen.
            places = (n for n, rank in enumerate(ranks, 1) if rank.rank == stays.rank)
            self.move_to(next(places, self.cursor))
        self.redraw()

    def content(self, width: int) -> Sequence[Line]:
        self.at.lined = width >= LINE_NEEDS
        return super().content(width)

    def action_mark(self) -> None:
        if self.chosen is not None:
            self.marked ^= {self.chosen.rank}
            self.action_down()
            self.redraw()

"""Ranks as rows: what each rank is doing, for how long, and the state of its process."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from typing import Final

from frtop_tui.diagnosis.model import Frame, JudgedRank, Why
from frtop_tui.job.model import RankState
from frtop_tui.job.units import live_duration, percent, timing
from frtop_tui.job.unprepared import is_least
from frtop_tui.text.activity import (
    blame_reasons,
    cpu_share,
    describe_activity,
    describe_activity_and_line,
    source_line,
    verdict_order,
)
from frtop_tui.text.rank_states import LETTERS, URGENCY
from frtop_tui.widgets.grid_layout import host_names, natural_key, short_hosts
from frtop_tui.widgets.spans import Line, Span
from frtop_tui.widgets.table import Column, RankRows, rank_column

ALIKE: Final = 4
LINE: Final = "line"
"""The column of the line of code. Without room for it, the activity names the line."""


@dataclass(slots=True)
class RowContext:
    """What cells need besides their rank."""

    now_ns: int = 0
    names: Mapping[str, str] = field(default_factory=dict)
    reasons: Mapping[int, Why] = field(default_factory=dict)
    order: Mapping[int, int] = field(default_factory=dict)
    has_line_column: bool = False
    said: Mapping[int, str] = field(default_factory=dict)
    """What the lens says of ranks that do nothing worth a word."""

    def take(self, frame: Frame) -> None:
        self.now_ns = frame.now_ns
        self.reasons, self.order = blame_reasons(frame), verdict_order(frame)

    def urgency(self, rank: JudgedRank) -> tuple[int, int]:
        """Culprits first, in the order of their verdicts, then by state."""
        return (self.order.get(rank.rank, len(URGENCY)), URGENCY[rank.state])

    def activity(self, rank: JudgedRank) -> str:
        describe = describe_activity if self.has_line_column else describe_activity_and_line
        return describe(rank, self.now_ns, self.reasons) or self.said.get(rank.rank, "")

    def since_s(self, rank: JudgedRank) -> float:
        """For sorting: 0 if unknown."""
        return rank.state_age_s(self.now_ns) or 0.0

    def since(self, rank: JudgedRank) -> str:
        """`4m12s`, or `>=4m12s` if it may have begun before frtop looked."""
        seconds = rank.state_age_s(self.now_ns)
        return "" if seconds is None else ">=" * is_least(rank) + live_duration(seconds)

    def heartbeat_s(self, rank: JudgedRank) -> float:
        """For sorting: -1 if unknown."""
        age_s = rank.heartbeat_age_s(self.now_ns)
        return -1.0 if age_s is None else age_s


def _state(rank: JudgedRank) -> Span:
    return (f"{LETTERS[rank.state]} {rank.state}", rank.state)


def _usual_ns(rank: JudgedRank) -> int:
    """How long ops at its line usually take, in ns; 0 if unknown."""
    op = rank.blocked_on
    return op.usual_ns if op is not None and op.usual_count else 0


def _usually(rank: JudgedRank) -> Span:
    usual = _usual_ns(rank)
    return (timing(usual) if usual else "", "dim")


def _line(rank: JudgedRank) -> Span:
    return (source_line(rank), "dim")


def _process(rank: JudgedRank) -> Span:
    # The last known state of a process that has ended would read as if it still ran.
    if rank.process is None or rank.exit_info is not None:
        return ("", "")
    return (rank.process.state, "")


def _share(rank: JudgedRank) -> float:
    share = cpu_share(rank.snapshot, rank.prior_snapshot, rank.identity.pid)
    return -1.0 if share is None or rank.exit_info is not None else share


def _cpu(rank: JudgedRank) -> Span:
    share = _share(rank)
    return ("" if share < 0 else percent(share), "dim")


def _step(rank: JudgedRank) -> int:
    return rank.status.step if rank.status is not None else 0


def _heartbeat(rank: JudgedRank, context: RowContext) -> Span:
    seconds = context.heartbeat_s(rank)
    if seconds < 0 or rank.exit_info is not None:
        return ("", "")
    return (
        live_duration(seconds),
        rank.state if rank.state in ("silent", "stopped") else "dim",
    )


def columns(marked: Collection[int], at: RowContext) -> list[Column[JudgedRank]]:
    """The table's columns, the essential ones first.

    Rows arrive in order of rank and sorting is stable, so keys leave the rank out.
    """
    return [
        rank_column(lambda r: r.rank, marked),
        Column("state", 9, _state, at.urgency),
        Column("for", 8, lambda r: (at.since(r), ""), lambda r: -at.since_s(r), right=True),
        Column("usually", 8, _usually, _usual_ns, right=True, needs=100),
        Column("host", 8, lambda r: (at.names[r.host], ""), lambda r: natural_key(r.host), wide=16),
        Column("activity", 0, lambda r: (at.activity(r), ""), at.activity, least=30),
        Column(LINE, 18, _line, lambda r: _line(r)[0], needs=110),
        Column("step", 8, lambda r: (str(_step(r) or ""), ""), _step, right=True, needs=90),
        Column("heartbeat", 9, partial(_heartbeat, context=at), lambda r: -at.heartbeat_s(r),
               right=True),
        Column("pid", 8, lambda r: (str(r.identity.pid or ""), "dim"), lambda r: r.identity.pid,
               right=True, needs=100),
        Column("proc", 4, _process, lambda r: _process(r)[0], needs=110),
        Column("cpu", 5, _cpu, lambda r: -_share(r), right=True, needs=120),
    ]  # fmt: skip


def most_relevant(
    frame: Frame, limit: int, amounts: Mapping[int, float] | None = None
) -> list[JudgedRank]:
    """At most `limit` ranks: culprits first, then by state, or the largest of `amounts`.

    Ranks in one state at one line of code are alike, and `ALIKE` of them say it.
    """
    order = verdict_order(frame)
    ranks: Collection[JudgedRank] = frame.ranks.values()
    if amounts:
        ranks = sorted(ranks, key=lambda one: -amounts.get(one.rank, -math.inf))
    alike: defaultdict[tuple[RankState, object], list[JudgedRank]] = defaultdict(list)
    full: set[RankState] = set()  # enough ranks that wait in no op: most of thousands
    for rank in ranks:
        op = rank.blocked_on
        if op is None and rank.state in full:
            continue
        rows = alike[rank.state, op.site if op is not None else None]
        if len(rows) < ALIKE and rank.rank not in order:
            rows.append(rank)
        elif op is None and len(rows) >= ALIKE:
            full.add(rank.state)
    culprits = (frame.ranks[rank] for rank in order if rank in frame.ranks)
    rest = chain.from_iterable(alike[key] for key in sorted(alike, key=lambda key: URGENCY[key[0]]))
    return list(islice(chain(culprits, rest), limit))


class RankTable(RankRows[JudgedRank]):
    """What each rank does, for how long, and the state of its process."""

    def __init__(self, marked: set[int], **keywords: str | None) -> None:
        self.context = RowContext()
        super().__init__(columns(marked, self.context), "no ranks", marked, **keywords)

    def number(self, row: JudgedRank) -> int:
        return row.rank

    def show_ranks(
        self, frame: Frame, ranks: Sequence[JudgedRank], said: Mapping[int, str] | None = None
    ) -> None:
        """Shows these ranks in this order; `said` of those that do nothing worth a word."""
        self.context.take(frame)
        self.context.said = said or {}
        hosts = host_names(frame.ranks)
        if hosts != self.context.names.keys():
            names = self.context.names = short_hosts(sorted(hosts))
            self.suffices = {"host": max(map(len, names.values()), default=0)}
        self.show(ranks, self.number)

    def content(self, width: int) -> Sequence[Line]:
        shown = self.visible_columns(width)
        self.context.has_line_column = any(column.title == LINE for column, _ in shown)
        return super().content(width)

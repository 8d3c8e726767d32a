"""Hosts as rows, those with problems first."""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil
from typing import ClassVar, Final

from msgspec import Struct
from textual.binding import Binding, BindingType

from frtop_probe.ring.rank_ranges import fold
from frtop_tui.diagnosis.model import Frame
from frtop_tui.job.model import HostState, HostView
from frtop_tui.widgets.formats import format_age_coarse, shorten_ranks
from frtop_tui.widgets.grid_layout import natural_key
from frtop_tui.widgets.spans import Span
from frtop_tui.widgets.table import Column, LineTable

STATE_TONE: Final[dict[HostState, str]] = {
    "failed": "bad",
    "silent": "silent",
    "connecting": "starting",
    "heard": "good",
}
"""In the order in which rows are sorted."""
ORDER: Final = {state: n for n, state in enumerate(STATE_TONE)}
_SECOND_NS: Final = 1_000_000_000


class HostRow(Struct, frozen=True):
    """A host with its ranks and the age of its last message."""

    host: HostView
    ranks: tuple[int, ...]
    silence_s: float | None
    """Seconds since its last message, None before the first."""
    recorded: bool = False
    """The frame was recorded: its ranks cannot be asked."""


def host_rows(frame: Frame) -> list[HostRow]:
    """All hosts, those with problems first, then by name."""
    ranks: dict[str, list[int]] = {}
    for number, rank in frame.ranks.items():
        ranks.setdefault(rank.host, []).append(number)
    hosts = sorted(frame.hosts, key=lambda host: (ORDER[host.state], natural_key(host.name)))
    return [
        HostRow(
            host,
            tuple(ranks.get(host.name, ())),
            max(0.0, (frame.now_ns - host.heard_ns) / 1e9) if host.heard_ns else None,
            frame.recorded is not None,
        )
        for host in hosts
    ]


def count_states(rows: Iterable[HostRow]) -> str:
    """`1 failed, 2 silent, 5 heard`."""
    counts: dict[str, int] = {}
    for row in rows:
        counts[row.host.state] = counts.get(row.host.state, 0) + 1
    return ", ".join(f"{count:,} {state}" for state, count in counts.items())


def clock_figures(host: HostView, error_ns: int) -> tuple[str, str]:
    """The clock's offset without its sign, and its error rounded up, in one unit."""
    in_seconds = max(abs(host.clock_ns), error_ns) >= _SECOND_NS
    scale, unit = (_SECOND_NS, "s") if in_seconds else (_SECOND_NS // 1000, "ms")
    offset, error = abs(host.clock_ns) / scale, ceil(error_ns * 10 / scale) / 10
    return f"{offset:.1f} {unit}", f"{error:.1f}"


def format_clock_offset(host: HostView) -> str:
    """`+1.2 ms ±0.3`, plus when the host's clock is ahead of ours; empty before it is known."""
    if host.clock_error_ns is None:
        return ""
    offset, error = clock_figures(host, host.clock_error_ns)
    return f"{'-' if host.clock_ns > 0 else '+'}{offset} ±{error}"


def _state(row: HostRow) -> Span:
    state = row.host.state
    word: str = state
    if state != "heard" and row.silence_s is not None:
        word = f"{state} {format_age_coarse(row.silence_s)}"
    return (word, STATE_TONE[state])


def _lost(row: HostRow) -> Span:
    return (f"{row.host.lost_updates:,}" if row.host.lost_updates else "", "warn")


def _may_ask(row: HostRow) -> Span:
    if row.silence_s is None or row.recorded:
        return ("", "")  # not known yet, or there is no rank to ask
    return ("yes", "dim") if row.host.may_act else ("read-only", "warn")


COLUMNS: Final[tuple[Column[HostRow], ...]] = (
    Column(
        "host", 12, lambda r: (r.host.name, "strong"), lambda r: natural_key(r.host.name), wide=24
    ),
    Column("state", 13, _state, lambda r: ORDER[r.host.state], wide=16),
    Column("ranks", 5, lambda r: (str(len(r.ranks) or ""), ""), lambda r: len(r.ranks), right=True),
    Column("which", 0, lambda r: (shorten_ranks(fold(r.ranks), 40), "dim"), lambda r: r.ranks[:1]),
    Column(
        "address",
        22,
        lambda r: (r.host.address, "dim"),
        lambda r: natural_key(r.host.address),
        needs=110,
    ),
    Column("agent", 10, lambda r: (r.host.version, "dim"), lambda r: r.host.version, needs=130),
    Column("lost", 4, _lost, lambda r: r.host.lost_updates, right=True, needs=72),
    Column(
        "clock",
        15,
        lambda r: (format_clock_offset(r.host), "dim"),
        lambda r: r.host.clock_ns,
        right=True,
        needs=72,
    ),
    Column("may ask", 9, _may_ask, lambda r: r.host.may_act),
)


class HostTable(LineTable[HostRow]):
    """The cursor stays on its host when rows move."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "choose", "ranks", tooltip="list the host's ranks", id="host.open"),
    ]

    def __init__(self) -> None:
        super().__init__(COLUMNS, "no hosts", id="hosts", classes="pane")
        self.entitle("hosts")

    def show_hosts(self, frame: Frame) -> None:
        selected = self.chosen if self.cursor > 1 else None
        self.rows = host_rows(frame)
        counts = count_states(self.rows)
        self.entitle(f"hosts {len(self.rows):,}: {counts}" if self.rows else "hosts")
        if selected is not None:
            name = selected.host.name
            lines = (n for n, row in enumerate(self.rows, 1) if row.host.name == name)
            self.move_to(next(lines, self.cursor))
        self.redraw()

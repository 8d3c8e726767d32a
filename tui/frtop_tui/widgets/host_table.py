"""Hosts as rows, those with problems first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import ceil
from typing import ClassVar, Final

from msgspec import Struct
from msgspec import field as struct_field
from textual.binding import Binding, BindingType

from frtop_probe.ring.rank_ranges import fold
from frtop_tui.diagnosis.evidence.host_facts import HostFact, facts_of_host
from frtop_tui.diagnosis.model import Frame
from frtop_tui.diagnosis.words.fact_words import Clock, fact_text
from frtop_tui.job.model import HostState, HostView
from frtop_tui.job.units import live_duration
from frtop_tui.text.notes import clock_of, rank_keys
from frtop_tui.widgets.gauge_cells import cpu_cell, disk_cell, gpu_cell, memory_cell, net_cell
from frtop_tui.widgets.grid_layout import natural_key
from frtop_tui.widgets.spans import Span, shorten_ranks
from frtop_tui.widgets.table import Column, LineTable

STATE_TONE: Final[dict[HostState, str]] = {
    "failed": "bad",
    "silent": "silent",
    "connecting": "starting",
    "reporting": "good",
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
    facts: tuple[HostFact, ...] = ()
    """What its gauges show that is out of the ordinary."""
    clock: Clock = str
    """Turns its times into times of day."""
    rank_keys: Mapping[int, int] = struct_field(default_factory=dict)
    """Its ranks by key, where there are facts."""

    @property
    def troubles(self) -> list[str]:
        """The facts in words; for a silent host, as last reported."""
        return [fact_text(fact, self.clock, self.rank_keys) for fact in self.facts]


def host_rows(frame: Frame) -> list[HostRow]:
    """All hosts, those with problems first, then those with facts, then by name."""
    ranks: dict[str, list[int]] = {}
    for number, rank in frame.ranks.items():
        ranks.setdefault(rank.host, []).append(number)
    rows = [
        HostRow(
            host,
            tuple(ranks.get(host.name, ())),
            max(0.0, (frame.now_ns - host.reported_ns) / 1e9) if host.reported_ns else None,
            frame.recorded is not None,
            facts_of_host(host),
            clock_of(frame, host),
            rank_keys(frame, host) if facts_of_host(host) else {},
        )
        for host in frame.hosts
    ]
    rows.sort(key=lambda r: (ORDER[r.host.state], not r.facts, natural_key(r.host.name)))
    return rows


def count_states(rows: Iterable[HostRow]) -> str:
    """`1 failed, 2 silent, 5 reporting`."""
    counts: dict[str, int] = {}
    for row in rows:
        counts[row.host.state] = counts.get(row.host.state, 0) + 1
    return ", ".join(f"{count:,} {state}" for state, count in counts.items())


def clock_figures(host: HostView, error_ns: int) -> tuple[str, str]:
    """The clock's offset without sign, and its error rounded up, in one unit."""
    in_seconds = max(abs(host.clock_ns), error_ns) >= _SECOND_NS
    scale, unit = (_SECOND_NS, "s") if in_seconds else (_SECOND_NS // 1000, "ms")
    offset, error = abs(host.clock_ns) / scale, ceil(error_ns * 10 / scale) / 10
    return f"{offset:.1f} {unit}", f"{error:.1f}"


def format_clock_offset(host: HostView) -> str:
    """`+1.2 ms ±0.3`, plus if the host's clock is ahead of ours; "" before it is measured."""
    if host.clock_error_ns is None:
        return ""
    offset, error = clock_figures(host, host.clock_error_ns)
    return f"{'-' if host.clock_ns > 0 else '+'}{offset} ±{error}"


def _state(row: HostRow) -> Span:
    state = row.host.state
    word: str = state
    if state != "reporting" and row.silence_s is not None:
        word = f"{state} {live_duration(row.silence_s)}"
    return (word, STATE_TONE[state])


def _lost(row: HostRow) -> Span:
    return (f"{row.host.lost_updates:,}" if row.host.lost_updates else "", "warn")


def _may_ask(row: HostRow) -> Span:
    if row.silence_s is None or row.recorded:
        return ("", "")  # unknown so far, or a file: no rank can be asked
    return ("yes", "dim") if row.host.may_act else ("read-only", "warn")


def _first_trouble(row: HostRow) -> Span:
    """The first fact, and how many more there are."""
    if row.host.problem is not None:
        return (str(row.host.problem), "warn")
    if not row.facts:
        return ("", "") if row.host.gauges is not None else ("no gauges", "dim")
    more = f" (+{len(row.facts) - 1})" if len(row.facts) > 1 else ""
    return (f"{row.troubles[0]}{more}", "warn")


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


GAUGE_COLUMNS: Final[tuple[Column[HostRow], ...]] = (
    COLUMNS[0],
    Column("state", 10, _state, lambda r: ORDER[r.host.state], wide=13),
    Column("ranks", 5, lambda r: (str(len(r.ranks) or ""), ""), lambda r: len(r.ranks), right=True,
           needs=100),
    Column("cpu", 12, lambda r: cpu_cell(r.host.gauges, 6), lambda r: r.host.name),
    Column("mem", 5, lambda r: memory_cell(r.host.gauges), lambda r: r.host.name, right=True),
    Column("net in/out", 20, lambda r: net_cell(r.host.gauges, 6), lambda r: r.host.name,
           needs=138),
    Column("disk", 16, lambda r: disk_cell(r.host.gauges), lambda r: r.host.name, needs=158),
    Column("gpu", 34, lambda r: gpu_cell(r.host.gauges), lambda r: r.host.name, needs=190),
    Column("out of the ordinary", 0, _first_trouble, lambda r: len(r.facts)),
)  # fmt: skip
"""What hosts do, and what is out of the ordinary."""


class HostTable(LineTable[HostRow]):
    """The cursor stays on its host when rows move."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "choose", "ranks", tooltip="list the host's ranks", id="host.open"),
        Binding(
            "v",
            "columns",
            "view",
            tooltip="what hosts do, or how they are reached",
            id="host.columns",
        ),
    ]

    def __init__(self) -> None:
        super().__init__(COLUMNS, "no hosts", id="hosts", classes="pane")
        self.entitle("hosts")
        self.by_gauges: bool | None = None
        """Whether to show gauges; None: if there are any."""
        self._sticks = False
        """Whether the cursor follows its host from line 1, too, instead of the worst host."""

    def action_columns(self) -> None:
        self.by_gauges = self.columns is not GAUGE_COLUMNS
        self._choose_columns()
        self.redraw()

    @property
    def visible_hosts(self) -> tuple[str, ...]:
        """Hosts on the screen, the one under the cursor first."""
        top = max(0, self.scroll_offset.y - 1)
        seen = self.rows[top : top + self.scrollable_content_region.height]
        chosen = [self.chosen] if self.chosen is not None else []
        return tuple(dict.fromkeys(row.host.name for row in (*chosen, *seen)))

    def _choose_columns(self) -> None:
        known = any(row.host.gauges is not None for row in self.rows)
        wanted = known if self.by_gauges is None else self.by_gauges
        self.columns = GAUGE_COLUMNS if wanted else COLUMNS

    def show_hosts(self, frame: Frame, first: str = "") -> None:
        """Shows all hosts of a frame; the cursor starts on host `first`."""
        begins = not self.rows
        self.show(host_rows(frame), lambda row: row.host.name, sticks=self._sticks)
        self._choose_columns()
        self.suffices = {"host": max((len(row.host.name) for row in self.rows), default=0)}
        self.empty = "no hosts"
        if frame.recorded is not None and frame.ranks:
            self.empty = f"no hosts: {frame.recorded.kind} do not name them"
        counts = count_states(self.rows)
        self.entitle(f"hosts {len(self.rows):,}: {counts}" if self.rows else "hosts")
        names = [row.host.name for row in self.rows]
        if begins and first in names:
            self.start_at(names.index(first) + 1)
            self._sticks = True
        self.redraw()

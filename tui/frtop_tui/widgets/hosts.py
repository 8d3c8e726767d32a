"""Hosts as rows, those in trouble first, and the one under the cursor in full."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar, Final

from msgspec import Struct
from textual.binding import Binding, BindingType

from frtop_probe.ring.rank_ranges import fold
from frtop_tui.diagnosis.judged import Frame
from frtop_tui.job.model import HostState, HostView
from frtop_tui.widgets.clock import clock_sentence, offset
from frtop_tui.widgets.grid_layout import natural
from frtop_tui.widgets.lines import LineView
from frtop_tui.widgets.spans import Line, Span, flow, plain, wrap
from frtop_tui.widgets.table import Column, LineTable
from frtop_tui.widgets.wording import age, calm, cut, ranks_word

STATE_TONE: Final[dict[HostState, str]] = {
    "failed": "bad",
    "silent": "silent",
    "connecting": "starting",
    "heard": "good",
}
"""In the order of interest."""
ORDER: Final = {state: n for n, state in enumerate(STATE_TONE)}
MEANING: Final[dict[HostState, str]] = {
    "failed": "cannot be reached, or does not let us in",
    "silent": "was heard and is no longer: its agent, the host or the network",
    "connecting": "not heard yet",
    "heard": "its agent speaks",
}


class HostRow(Struct, frozen=True):
    """A host with what the ranks and the moment add to it."""

    host: HostView
    ranks: tuple[int, ...]
    silence_s: float | None
    """How long ago it was last heard, None: never."""
    of_then: bool = False
    """Recorded: nothing more will be asked of it, or compared with it."""


def rows_of(frame: Frame) -> list[HostRow]:
    """All hosts, those in trouble first, then by name."""
    ranks: dict[str, list[int]] = {}
    for number, rank in frame.ranks.items():
        ranks.setdefault(rank.host, []).append(number)
    hosts = sorted(frame.hosts, key=lambda host: (ORDER[host.state], natural(host.name)))
    then = frame.recorded is not None
    return [
        HostRow(host, tuple(ranks.get(host.name, ())), _silence(frame, host), then)
        for host in hosts
    ]


def _silence(frame: Frame, host: HostView) -> float | None:
    return max(0.0, (frame.now_ns - host.heard_ns) / 1e9) if host.heard_ns else None


def tally(rows: Iterable[HostRow]) -> str:
    """`1 failed, 2 silent, 5 heard`."""
    counts: dict[str, int] = {}
    for row in rows:
        counts[row.host.state] = counts.get(row.host.state, 0) + 1
    return ", ".join(f"{count:,} {state}" for state, count in counts.items())


def _state(row: HostRow) -> Span:
    state = row.host.state
    word: str = state
    if state != "heard" and row.silence_s is not None:
        word = f"{state} {calm(row.silence_s)}"
    return (word, STATE_TONE[state])


def _lost(row: HostRow) -> Span:
    return (f"{row.host.lost_updates:,}" if row.host.lost_updates else "", "warn")


def _may(row: HostRow) -> Span:
    if row.silence_s is None:
        return ("", "")  # nobody has said yet
    if row.of_then:
        return ("", "")  # there is nobody to ask
    return ("yes", "dim") if row.host.may_act else ("look only", "warn")


COLUMNS: Final[tuple[Column[HostRow], ...]] = (
    Column("host", 12, lambda r: (r.host.name, "strong"), lambda r: natural(r.host.name), wide=24),
    Column("state", 13, _state, lambda r: ORDER[r.host.state], wide=16),
    Column("ranks", 5, lambda r: (str(len(r.ranks) or ""), ""), lambda r: len(r.ranks), right=True),
    Column("which", 0, lambda r: (cut(fold(r.ranks), 40), "dim"), lambda r: r.ranks[:1]),
    Column(
        "address",
        22,
        lambda r: (r.host.address, "dim"),
        lambda r: natural(r.host.address),
        needs=110,
    ),
    Column("agent", 10, lambda r: (r.host.version, "dim"), lambda r: r.host.version, needs=130),
    Column("lost", 4, _lost, lambda r: r.host.lost_updates, right=True, needs=72),
    Column(
        "clock",
        15,
        lambda r: (offset(r.host), "dim"),
        lambda r: r.host.clock_ns,
        right=True,
        needs=72,
    ),
    Column("may ask", 9, _may, lambda r: r.host.may_act),
)


class HostTable(LineTable[HostRow]):
    """The cursor stays on its host when others change their place."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "choose", "its ranks", tooltip="the ranks of this host", id="host.open"),
    ]

    def __init__(self) -> None:
        super().__init__(COLUMNS, "no host was named", id="hosts", classes="pane")
        self.entitle("hosts")

    def show_hosts(self, frame: Frame) -> None:
        stays = self.chosen if self.cursor > 1 else None
        self.rows = rows_of(frame)
        self.entitle(f"hosts {len(self.rows):,}: {tally(self.rows)}" if self.rows else "hosts")
        if stays is not None:
            names = (n for n, row in enumerate(self.rows, 1) if row.host.name == stays.host.name)
            self.move_to(next(names, self.cursor))
        self.redraw()


def host_lines(row: HostRow, width: int) -> list[Line]:
    """All that is known of one host: what is wrong first."""
    host = row.host
    rows: list[Line] = []
    if host.problem:
        rows += wrap(host.problem, width, "warn")
    heard = "never heard" if row.silence_s is None else f"last heard {age(row.silence_s)} ago"
    if host.state == "heard":
        heard = ""
    parts = (
        plain(host.state, STATE_TONE[host.state]),
        plain(MEANING[host.state] if not host.problem else ""),
        plain(heard, "warn"),
        plain(f"at {host.address}" if host.address else ""),
        plain(f"agent {host.version}" if host.version else "", "dim"),
    )
    rows += flow(parts, width)
    who = f"{ranks_word(len(row.ranks))}: {fold(row.ranks)}" if row.ranks else "none known there"
    rows += wrap(who, width, "", ("ranks   ", "dim"))
    if host.clock_error_ns is not None or not row.of_then:
        rows += wrap(clock_sentence(host), width, "", ("clock   ", "dim"))
    if not host.may_act and not row.of_then:
        look = "we may look there, and ask nothing of the ranks (t, T)"
        rows += wrap(look, width, "warn", ("rights  ", "dim"))
    if host.lost_updates:
        lost = f"{host.lost_updates:,} updates from there were lost on the way, and made up for"
        rows += wrap(lost, width, "warn", ("lost    ", "dim"))
    for note in host.notes:
        rows += wrap(note, width, "", ("note    ", "dim"))
    return rows


class HostPane(LineView):
    """The host under the cursor, with its problem and notes in full."""

    def __init__(self) -> None:
        super().__init__(id="host", classes="pane")
        self.row: HostRow | None = None

    def show(self, row: HostRow | None) -> None:
        self.row = row
        self.entitle(row.host.name if row is not None else "")
        self.redraw()

    def content(self, width: int) -> Sequence[Line]:
        return () if self.row is None else host_lines(self.row, width)

"""Everything about one host: its problem, gauges, agent, ranks, clock, rights and notes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from frtop_probe.ring.rank_ranges import fold
from frtop_tui.job.model import HostView
from frtop_tui.job.units import counted, duration
from frtop_tui.text.lines import WordLine
from frtop_tui.text.notes import HOST_STATES
from frtop_tui.widgets.gauge_lines import RanksOf, gauge_lines
from frtop_tui.widgets.host_table import STATE_TONE, HostRow, clock_figures, format_clock_offset
from frtop_tui.widgets.lines import LineView
from frtop_tui.widgets.spans import Line, flow, plain, word_rows, wrap


def describe_clock(host: HostView) -> str:
    """The offset of the host's clock in words."""
    if host.clock_error_ns is None:
        return "its clock has not been compared with ours yet"
    if abs(host.clock_ns) <= host.clock_error_ns:
        return f"its clock agrees with ours ({format_clock_offset(host)})"
    side = "ahead of" if host.clock_ns < 0 else "behind"
    offset, error = clock_figures(host, host.clock_error_ns)
    return f"its clock is {offset} {side} ours, ±{error}; ages shown here are corrected for that"


def host_lines(row: HostRow, width: int, ranks_of: RanksOf = lambda _: "") -> list[Line]:
    """Its problem, what is out of the ordinary, its gauges, and how it is reached."""
    host = row.host
    rows: list[Line] = []
    if host.problem:
        rows += wrap(str(host.problem), width, "warn")
    for trouble in row.troubles:
        rows += wrap(trouble, width, "warn", ("! ", "warn"))
    if host.gauges is not None:
        if host.state != "reporting" and row.silence_s is not None:
            rows.append(plain(f"as of {duration(row.silence_s)} ago:", "warn"))
        rows += gauge_lines(host.gauges, ranks_of, width)
    last = (
        "never reported" if row.silence_s is None else f"last report {duration(row.silence_s)} ago"
    )
    parts = (
        plain(host.state, STATE_TONE[host.state]),
        plain(HOST_STATES[host.state] if not host.problem else ""),
        plain(host.progress if host.state != "reporting" else "", "dim"),
        plain(last if host.state != "reporting" else "", "warn"),
        plain(f"at {host.address}" if host.address else ""),
        plain(f"agent {host.version}" if host.version else "", "dim"),
    )
    rows += flow(parts, width)
    return rows + word_rows(_facts(row), width, 8)


def _facts(row: HostRow) -> Iterator[WordLine]:
    host, ranks = row.host, counted(len(row.ranks), "rank")
    yield WordLine("ranks", f"{ranks}: {fold(row.ranks)}" if row.ranks else "none known")
    if host.clock_error_ns is not None or not row.recorded:
        yield WordLine("clock", describe_clock(host))
    if not host.may_act and not row.recorded:
        rights = "our key is read-only there: it may not ask the ranks for tensors (t)"
        yield WordLine("rights", rights, "warn")
    if host.lost_updates:
        lost = f"{counted(host.lost_updates, 'update')} lost in transit and requested again"
        yield WordLine("lost", lost, "warn")
    yield from (WordLine("note", note) for note in host.notes)


class HostPane(LineView):
    """The host under the cursor in full."""

    def __init__(self) -> None:
        super().__init__(id="host", classes="pane")
        self.row: HostRow | None = None
        self.ranks: Mapping[int, int] = {}
        """The host's ranks in the shown job, by key."""

    def show(
        self, row: HostRow | None, ranks: Mapping[int, int], ended: Collection[int] = ()
    ) -> None:
        """`ended` are keys of ranks whose last figures would read as if they still ran."""
        if row is not None and row.host.gauges is not None and ended:
            gauges = row.host.gauges.without_ranks(ended)
            row = replace(row, host=replace(row.host, gauges=gauges))
        self.row, self.ranks = row, ranks
        self.entitle(row.host.name if row is not None else "")
        self.redraw()

    def content(self, width: int) -> Sequence[Line]:
        return () if self.row is None else host_lines(self.row, width, self._ranks_of)

    def _ranks_of(self, keys: Iterable[int]) -> str:
        return fold(sorted(self.ranks[key] for key in keys if key in self.ranks))

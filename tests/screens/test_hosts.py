"""The screen of hosts: state, problems, clock and rights of each host."""

from __future__ import annotations

import time

import pytest
from msgspec.structs import replace

from frtop_tui.job.model import HostView, Problem
from frtop_tui.screens.hosts import host_filter
from frtop_tui.screens.ranks import RanksScreen
from frtop_tui.widgets.host_pane import describe_clock
from frtop_tui.widgets.host_table import HostRow, HostTable, format_clock_offset, host_rows

from . import answer_scenes, scenes
from .driving import driven

MS = 1_000_000


async def test_hosts_are_shown_with_their_states_problems_and_rights() -> None:
    async with driven(answer_scenes.hosts(), size=(120, 30)) as app:
        await app.press("3")
        await app.sees("hosts 8: 1 failed, 1 silent, 1 connecting, 5 reporting")
        await app.sees("failed", "silent 41s", "connecting", "reporting", "10.0.0.7:7677")
        table = app.screen.query_one(HostTable)
        assert [row.host.name for row in table.rows][:4] == ["node6", "node7", "node5", "node0"]
        tones = {table.columns[1].cell(row) for row in table.rows}
        assert len(tones) == len({tone for _, tone in tones}) == 4

        await app.resize(80, 24)
        await app.sees("node6 refuses our key", "never reported")
        await app.press("j")
        await app.sees("node7 has not reported for 41s", "last report 41s ago")
        await app.sees("3 updates lost in transit")
        await app.press("j")
        await app.sees("no answer yet")
        await app.press("j", "j", "j", "j")
        await app.sees("note    rank 29: no room for its ring", "our key is read-only there")

        await app.press("G", "k")
        for size in ((60, 15), (80, 24), (200, 60)):
            await app.resize(*size)
            await app.sees("read-only")
            if size[0] >= 80:
                await app.sees("+0.3 ms ±0.3")


async def test_enter_lists_the_ranks_of_that_host_only() -> None:
    frame = scenes.hung()
    ranks = {n: replace(view, host=f"node{n // 8 + 1}") for n, view in frame.ranks.items()}
    ranks[63] = replace(ranks[63], host="node10")
    names = sorted({view.host for view in ranks.values()})
    hosts = tuple(HostView(name, "reporting", reported_ns=scenes.NOW) for name in names)
    async with driven(replace(frame, ranks=ranks, hosts=hosts), size=(100, 30)) as app:
        await app.press("3")
        chosen = app.screen.query_one(HostTable).chosen
        assert chosen is not None
        assert chosen.host.name == "node5"  # the culprit's
        await app.press("g", "enter")
        await app.sees("ranks 8 of 64, filter host:node1")
        assert isinstance(app.screen, RanksScreen)
        await app.press("escape", "escape")
        await app.sees("job > hosts")


def test_a_host_with_filter_syntax_in_its_name_is_filtered_by_rank() -> None:
    odd = HostRow(HostView("[fd00::1]:7677", "reporting"), (3, 4, 5), 0.1)
    assert host_filter(odd) == "rank:3-5"
    assert host_filter(replace(odd, host=HostView("node1:7677", "reporting"))) == "host:node1:7677"


async def test_the_cursor_stays_on_its_host_when_another_fails() -> None:
    frame = answer_scenes.many_hosts(20, silent=0)
    async with driven(frame) as app:
        await app.press("3", "j", "j")
        table = app.screen.query_one(HostTable)
        assert table.chosen is not None
        assert table.chosen.host.name == "node2"
        hosts = (
            *frame.hosts[:19],
            replace(frame.hosts[19], state="failed", problem=Problem("gone")),
        )
        await app.give(replace(frame, hosts=hosts))
        assert table.chosen.host.name == "node2"
        await app.sees("hosts 20: 1 failed, 19 reporting")


async def test_a_thousand_hosts_cost_little() -> None:
    frame = answer_scenes.many_hosts()
    async with driven(frame, size=(160, 50)) as app:
        await app.press("3")
        await app.sees("hosts 1,000: 3 silent, 997 reporting")
        table = app.screen.query_one(HostTable)
        table.cells_repainted = 0
        hosts = (*frame.hosts[:-1], replace(frame.hosts[-1], lost_updates=7))
        begin = time.process_time()
        await app.give(replace(frame, hosts=hosts))
        print(f"1,000 hosts, 8,000 ranks: {(time.process_time() - begin) * 1e3:.1f} ms CPU a tick")
        assert table.cells_repainted == 0
        await app.press("G")
        await app.sees("node999")
        await app.give(replace(frame))
        table.cells_repainted = 0
        hosts = (*frame.hosts[:-1], replace(frame.hosts[-1], lost_updates=8))
        await app.give(replace(frame, hosts=hosts))
        assert table.cells_repainted == 1


@pytest.mark.parametrize(
    ("clock_ns", "error_ns", "shown"),
    [
        (-1_200_000, 250_000, "+1.2 ms ±0.3"),
        (3 * MS, 20_000, "-3.0 ms ±0.1"),
        (0, 40_000, "+0.0 ms ±0.1"),
        (-90 * scenes.S, MS, "+90.0 s ±0.1"),
        (5, None, ""),
    ],
)
def test_clock_offsets_never_understate_their_error(
    clock_ns: int, error_ns: int | None, shown: str
) -> None:
    host = HostView("a", "reporting", clock_ns=clock_ns, clock_error_ns=error_ns)
    assert format_clock_offset(host) == shown


def test_a_clock_is_described_in_words() -> None:
    host = HostView("a", "reporting", clock_ns=-1_200_000, clock_error_ns=250_000)
    assert describe_clock(host).startswith("its clock is 1.2 ms ahead of ours, ±0.3")
    assert "behind" in describe_clock(replace(host, clock_ns=9 * MS))
    assert "agrees" in describe_clock(replace(host, clock_ns=200_000))
    assert "not been compared" in describe_clock(replace(host, clock_error_ns=None))


def test_ranks_of_unlisted_hosts_are_ignored() -> None:
    frame = replace(scenes.hung(), hosts=scenes.hosts()[:1])
    (row,) = host_rows(frame)
    assert row.ranks == tuple(range(8))


async def test_a_recorded_host_shows_no_rights_and_no_clock() -> None:
    async with driven(answer_scenes.recorded(), size=(120, 30)) as app:
        await app.press("3")
        await app.sees("which")
        assert "not been compared" not in app.text()
        assert "yes" not in app.text()

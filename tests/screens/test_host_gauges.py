"""The screen of hosts with gauges: rows, graphs, what is out of the ordinary, one host in full."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterable

from msgspec.structs import replace

from frtop_probe import wire
from frtop_probe.gauges.readings import SubjectReading
from frtop_probe.history_columns import pack
from frtop_tui.job.host_gauges import UNKNOWN, GaugedSubject, HostGauges
from frtop_tui.widgets.gauge_cells import graph, sparkline
from frtop_tui.widgets.host_pane import HostPane, host_lines
from frtop_tui.widgets.host_table import GAUGE_COLUMNS, HostTable, host_rows
from frtop_tui.widgets.process_pane import host_summary
from frtop_tui.widgets.spans import text_of

from .driving import driven
from .gauge_scenes import braked, gauges, measured, ordinary, subject
from .scenes import NOW, S
from .test_cost import painted

BRAKE = "gpu4: 1,110 of 1,980 MHz since"


def test_a_graph_shows_peaks_and_gaps() -> None:
    assert sparkline((0, 500, 1000), 3, 1000) == "▁▄█"
    assert sparkline((0, 0, 9, 0), 2, 10) == "▁▇"
    assert sparkline((UNKNOWN, 5, UNKNOWN), 3, 10) == " ▄ "
    assert sparkline((7,), 4, 7) == "   █"
    assert sparkline((0, 0), 2) == "▁▁"


def test_histories_that_nobody_has_any_more_take_no_memory() -> None:
    tracemalloc.start()
    try:
        for first in range(100):  # as of a host, one after the other
            history = {"cpu": pack([1000 * first + one * 7919 % 1000 for one in range(320)])}
            now = HostGauges(1, (GaugedSubject("host", "", history=history),), points=320)
            assert len(graph(now, now.subjects[0], "cpu", 10)) == 10
        assert tracemalloc.get_traced_memory()[0] < 400_000
    finally:
        tracemalloc.stop()


async def test_what_is_out_of_the_ordinary_comes_first_and_in_words() -> None:
    async with driven(measured(6), size=(120, 40)) as app:
        await app.press("3")
        shown = app.screen.query_one(HostPane).row
        assert shown is not None
        assert shown.host.name == "node4"  # the culprit's
        await app.press("g")
        await app.sees("hosts 8: 8 reporting", "out of the ordinary", BRAKE, "power brake", "61 %")
        await app.sees("node6   reporting")  # as wide as the names
        table = app.screen.query_one(HostTable)
        assert [row.host.name for row in table.rows][:2] == ["node6", "node0"]
        await app.sees("! gpu4: 1,110 of 1,980 MHz since", "gpu7", "mlx5_0:1", "in 3.10 GB/s")


async def test_a_host_unfolds_at_every_size_and_a_key_shows_how_hosts_are_reached() -> None:
    async with driven(measured(6), size=(150, 40)) as app:
        await app.press("3")
        await app.sees("net in/out")
        await app.press("v")
        await app.sees("may ask")
        await app.press("v")
        await app.sees("net in/out")
        for size in ((80, 24), (120, 40), (200, 60)):
            await app.resize(*size)
            await app.press("g", "space")
            await app.sees("! gpu4", "node6", "gpu0", "98 % busy")
            await app.press("tab", "G")
            await app.sees("reporting   its agent answers")
            await app.press("space")
            await app.sees("node7")


async def test_the_source_is_asked_for_the_hosts_on_the_screen_only() -> None:
    async with driven(measured(6, hosts=512), size=(80, 24)) as app:
        await app.press("3", "g")
        app.app.tick()
        shown = app.source.shown_hosts[-1]
        assert shown[0] == "node6"
        assert 5 < len(shown) < 20
        await app.press("1")
        app.app.tick()
        assert app.source.shown_hosts[-1] == ()


async def test_an_equal_frame_repaints_nothing_and_a_figure_only_its_cell() -> None:
    frame = measured(6)
    async with driven(frame, size=(120, 40)) as app:
        await app.press("3")
        await app.sees("61 %")
        table = app.screen.query_one(HostTable)
        painted(table)
        await app.give(replace(frame))
        assert painted(table) == 0

        def busier(ago_s: int) -> Iterable[SubjectReading]:
            for one in ordinary(ago_s):
                cpu = 700 if one.kind == "host" and not ago_s else None
                yield subject(one.kind, one.name, {**one.values, **({"cpu": cpu} if cpu else {})},
                              detail=one.detail, pids=one.pids)  # fmt: skip

        hosts = tuple(
            replace(host, gauges=gauges(busier)) if host.name == "node2" else host
            for host in frame.hosts
        )
        await app.give(replace(frame, hosts=hosts))
        assert painted(table) == 1


def test_a_silent_host_says_how_old_its_figures_are() -> None:
    frame = measured(1)
    silent = replace(frame.hosts[1], state="silent", reported_ns=NOW - 41 * S)
    (row,) = host_rows(replace(frame, hosts=(silent,)))
    text = "\n".join(map(text_of, host_lines(row, 120)))
    assert "as of 41s ago:" in text


async def test_a_rank_that_ended_has_no_figures() -> None:
    """The last ones would read as if it still used processors and memory."""
    frame = measured(1)
    ended = replace(frame.ranks[8], state="dead", exit_info=wire.ExitInfo(1, signal=9))
    over = replace(frame, ranks={**frame.ranks, 8: ended})
    for shown, ranks in ((frame, 8), (over, 7)):
        async with driven(shown, size=(150, 60)) as app:
            await app.press("3", "g")
            await app.sees("hosts 8")
            row = app.screen.query_one(HostPane).row
            assert row is not None
            assert row.host.gauges is not None
            kinds = [one.kind for one in row.host.gauges.subjects]
            assert kinds.count("rank") == ranks
            assert kinds.count("gpu") == 8
            assert kinds.count("cgroup") == 1


def test_what_a_host_does_not_offer_is_said_and_not_zero() -> None:
    def bare(_ago_s: int) -> Iterable[SubjectReading]:
        yield subject("host", "", {"cores": 4, "cpu": 10})

    frame = measured(1)
    known = replace(gauges(bare), notes=("no InfiniBand", "pressure is not offered by this kernel"))
    (row,) = host_rows(replace(frame, hosts=(replace(frame.hosts[1], gauges=known),)))
    text = "\n".join(map(text_of, host_lines(row, 120)))
    assert "not      no InfiniBand; pressure is not offered by this kernel" in text
    assert "pressure  some" not in text
    assert "memory    not known" in text
    assert [column.cell(row)[0] for column in GAUGE_COLUMNS][4:8] == ["", "", "", ""]


def test_the_host_of_a_rank_is_one_line() -> None:
    host = replace(measured(1).hosts[1], gauges=gauges(braked))
    (line,) = host_summary(host, 5)
    text = text_of(line)
    assert text.startswith("host · gpu4: 1,110 of 1,980 MHz, power brake · cpu 61 %")
    assert text.endswith("this rank and its children 3.9 cores")
    (line,) = host_summary(host, 3)
    assert "gpu4" not in text_of(line)
    assert host_summary(replace(host, state="silent"), 5) == []
    assert host_summary(replace(host, gauges=None), 5) == []


def test_hostile_names_are_only_text() -> None:
    def hostile(_ago_s: int) -> Iterable[SubjectReading]:
        yield subject("disk", "/a\x1b[31m\n", {"size": 10, "free": 1}, detail="x\x07")

    frame = measured(1)
    odd = replace(frame.hosts[1], gauges=gauges(hostile))
    (row,) = host_rows(replace(frame, hosts=(odd,)))
    text = "".join(map(text_of, host_lines(row, 120)))
    assert "\x1b" not in text
    assert "\x07" not in text

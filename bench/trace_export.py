"""Measures how fast the trace of a large job is made: `frtop export --format chrome`."""

from __future__ import annotations

import statistics
import time
from typing import Final

from frtop_probe import wire
from frtop_tui.files.capture import collected
from frtop_tui.files.formats.chrome_trace import chrome_trace
from frtop_tui.job.groups import group_views

RANKS: Final = 64
OPS: Final = 3000
EVERY_NS: Final = 20_000_000
NOW_NS: Final = 10**14
ROUNDS: Final = 5
BUDGET: Final = 30


def main() -> None:
    """Prints the median speed of several exports."""
    from connect.fakes import frame_of, rank_view  # noqa: PLC0415 - parts of the tests
    from history_rows import HistoryRow, packed  # noqa: PLC0415
    from job_statistics.ranks import ALL_REDUCE, LINE, group  # noqa: PLC0415

    groups = {1: group(1, f"0-{RANKS - 1}")}
    views = [rank_view(rank, f"node{rank // 8}", groups=groups) for rank in range(RANKS)]
    histories = {}
    for rank in range(RANKS):
        rows = packed(
            HistoryRow(n, 1, n, 1, 1, NOW_NS - (OPS - n) * EVERY_NS + 1000 * rank, 5_000_000, 1, 1)
            for n in range(1, OPS)
        )
        history = wire.History((ALL_REDUCE,), (LINE,), rows)
        histories[rank] = wire.HistoryResponse(1, "node0", rank + 1, history)
    frame = collected(frame_of(*views, now=NOW_NS, groups=group_views(views)), histories, ())
    rates = []
    for _ in range(ROUNDS):
        begin = time.process_time()
        size = len(chrome_trace(frame))
        rates.append(size / 1e6 / (time.process_time() - begin))
    print(
        f"a trace of {RANKS} ranks with {OPS} ops each, {size / 1e6:.0f} MB:"
        f" {statistics.median(rates):.0f} MB per second of CPU (budget {BUDGET})"
    )

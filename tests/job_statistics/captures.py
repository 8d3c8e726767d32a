"""Captures of a job with a straggler, as `frtop capture` writes them."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from connect.fakes import frame_of, rank_view
from frtop_probe import wire
from frtop_tui.diagnosis.model import Frame
from frtop_tui.files import capture
from frtop_tui.job.groups import group_views
from history_rows import HistoryRow, packed
from job_statistics.ranks import ALL_REDUCE, LINE, MS, S, group

GROUP = group(1, "0-3")


def write(path: Path, *, late_ms: int = 20, torch: str = "2.13.0") -> Frame:
    """A capture of four ranks; rank 2 comes last to every op, and a step takes 0.1 s."""
    views = [rank_view(rank, "node0", groups={1: GROUP}) for rank in range(4)]
    views = [
        replace(
            view, identity=replace(view.identity, torch=torch, main_ident=1, start_ticks=late_ms)
        )  # another run
        for view in views
    ]
    frame = frame_of(*views, now=100 * S, groups=group_views(views))
    histories = {}
    for rank in range(4):
        late = late_ms * MS if rank == 2 else 0
        rows = (
            HistoryRow(
                n, 1, n, 1, 1, 90 * S + n * 100 * MS + late, late_ms * MS - late + MS, 1, 1
            )
            for n in range(1, 81)
        )  # fmt: skip
        marks = tuple(
            wire.Mark("step", at, at, n, "", 32)
            for n in range(80)
            for at in (90 * S + n * 100 * MS + 50 * MS,)
        )
        history = wire.History((ALL_REDUCE,), (LINE,), packed(rows), marks=marks)
        histories[rank] = wire.HistoryResponse(1, "node0", rank + 1, history)
    capture.write(path, frame, histories, ())
    return capture.read(path)

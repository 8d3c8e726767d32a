"""The time to open and to paint the timeline and side-by-side queues: 64 ranks, 8,192 ops each."""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from msgspec import structs

from connect.scripted_source import ScriptedSource
from frtop_probe import wire
from frtop_probe.garbage import collect_rarely
from frtop_probe.history_columns import pack_rows, unpack
from frtop_tui.app import FrtopApp
from frtop_tui.diagnosis.model import Frame, JudgedRank
from frtop_tui.features.timeline.alignment import aligned
from frtop_tui.features.timeline.histories import Histories
from frtop_tui.features.timeline.lane import lane_of
from frtop_tui.features.timeline.op_columns import OpColumns, columns_of, extended
from frtop_tui.features.timeline.view import TimelineScreen
from frtop_tui.job.model import Coverage

RANKS: Final = 64
OPS: Final = 8192
SIZE: Final = (200, 80)
NOW: Final = 10**15
ACTIONS: Final = (
    *("zoom(-1)",) * 6,
    *("op(-1)", "op(1)", "one_op", "back", "lanes", "back", "follow", "follow"),
    *("zoom(1)",) * 8,
)
TURNS: Final = 40
"""Turns of the event loop: messages go from the app to its widgets, and back."""


def main() -> None:
    collect_rarely()  # as the program does
    sent = [_history(rank) for rank in range(RANKS)]
    cpu, wall = time.process_time(), time.perf_counter()
    ops = {rank: columns_of(history, known_until=NOW) for rank, history in enumerate(sent)}
    print(f"timeline of {RANKS} ranks with {OPS:,} ops each, a terminal of {SIZE[0]}x{SIZE[1]}:")
    print(f"  histories into columns     {_ms(cpu, wall)}")
    cpu, wall = time.process_time(), time.perf_counter()
    extended(ops[0], columns_of(_newest(sent[0])), 2 * OPS)
    print(f"  64 new ops of one rank     {_ms(cpu, wall)}")
    frame = _frame()
    lanes = [lane_of(frame, rank, ops[rank]) for rank in range(8)]
    cpu, wall = time.process_time(), time.perf_counter()
    found = aligned(lanes, OPS)
    found.first_difference()
    print(f"  8 queues side by side      {_ms(cpu, wall)}   {len(found):,} rows")
    asyncio.run(_screen(frame, ops))


async def _screen(frame: Frame, ops: Mapping[int, OpColumns]) -> None:
    source = ScriptedSource([frame])
    source.given["timeline"] = Histories(ops)
    app = FrtopApp(source, auto_capture=False)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause()
        opened = await _painted(app, lambda: app.open(TimelineScreen(set(), 0)))
        screen = app.screen
        assert isinstance(screen, TimelineScreen)
        print(f"  `w` to painted             {opened.text}   (budget 500 ms of wall time)")
        taken = [
            (await _painted(app, partial(app.run_action, action, screen)), action)
            for action in ACTIONS
        ]
        worst, action = max(taken, key=lambda one: one[0].cpu_ms)
        middle, *_, slow = statistics.quantiles([one.cpu_ms for one, _ in taken], n=20)[9:]
        print(f"  a key to painted           {worst.text} at worst ({action}), median {middle:.0f},"
              f" p95 {slow:.0f} ms of CPU   (budget 100 ms of wall time)")  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Taken:
    cpu_ms: float
    wall_ms: float

    @property
    def text(self) -> str:
        return f"{self.cpu_ms:6.0f} ms of CPU, {self.wall_ms:5.0f} ms"


async def _painted(app: FrtopApp, act: Callable[[], Awaitable[object]]) -> _Taken:
    """How long an action takes until its screen is composed."""
    cpu, wall = time.process_time(), time.perf_counter()
    await act()
    for _ in range(TURNS):
        await asyncio.sleep(0)
    app.screen._compositor.render_strips()  # noqa: SLF001 - what a terminal is sent is made of it
    return _Taken((time.process_time() - cpu) * 1e3, (time.perf_counter() - wall) * 1e3)


def _ms(cpu: float, wall: float) -> str:
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return _Taken(cpu * 1e3, wall * 1e3).text


def _history(rank: int) -> wire.History:
    """Ops of two groups; all ranks issue those of the first group at about the same time."""
    random_ = random.Random(rank)
    signatures = tuple(map(wire.Signature, ("all_reduce", "all_gather", "reduce_scatter")))
    site = wire.Site("/src/train.py", 9, "train")
    rows = []
    for n in range(OPS):
        issued = NOW - (OPS - n) * 5_000_000 + random_.randrange(2_000_000)
        took = random_.randrange(100_000, 2_900_000)
        ids = 100 + n, 1 + n % 2, 1 + n // 2, 1 + n % 3, 1
        rows.append((*ids, issued, took, 7, 1, 0, 0, 0, 0))
    return wire.History(signatures, (site,), pack_rows(tuple(zip(*rows, strict=True))))


def _newest(history: wire.History) -> wire.History:
    assert history.columns is not None
    values = [list(column)[-64:] for column in unpack(history.columns)]
    return structs.replace(history, columns=pack_rows(tuple(values)))


def _frame() -> Frame:
    job = wire.Job("node0", 29500, RANKS, name="bench")
    groups = {
        1: wire.Group(1, "0", "dp", "nccl", f"0-{RANKS - 1}"),
        2: wire.Group(2, "1", "tp", "nccl", f"0-{RANKS - 1}"),
    }
    ranks = {
        rank: JudgedRank(
            rank,
            f"node{rank // 8}",
            rank,
            wire.Identity(1000 + rank, 1, rank, rank % 8, job),
            "moving",
            NOW,
            NOW,
            0,
            wire.RankStatus(2, NOW, OPS),
            groups,
        )
        for rank in range(RANKS)
    }
    return Frame(
        NOW,
        1_790_000_000 * 10**9,
        "healthy",
        NOW,
        job,
        ranks=ranks,
        coverage=Coverage(RANKS, RANKS),
    )

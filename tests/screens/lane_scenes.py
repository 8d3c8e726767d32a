"""Frames with the histories of ranks, for tests and pictures of the timeline and the queues.

Eight ranks of two hosts train for five steps: rank 5's forward takes longer, so that all others
wait for it. Hosts' clocks are apart; the operator knows by how much.
"""

from __future__ import annotations

from msgspec.structs import replace

from frtop_probe import wire
from frtop_tui.diagnosis.model import Frame, JudgedRank
from frtop_tui.job.groups import group_views
from frtop_tui.job.model import Coverage, HostView, Recorded
from screens.scenes import GRAD, JOB, MAIN, NOW, SITE, TP, TP_SITE, WALL, WORLD, S

MS = 1_000_000
RANKS = 8
STRAGGLER = 5
STEP_NS = 240 * MS
STEPS = 5
CLOCKS = (40_000 * S, 35_000 * S)
ERROR_NS = 200_000
GATHER = wire.Signature("all_gather", inputs=(wire.TensorSpec("bfloat16", (4096, 8192)),))
BEGIN = NOW - STEPS * STEP_NS - 20 * MS


def clock(rank: int) -> int:
    return CLOCKS[rank // 4]


def ops_of_rank(rank: int) -> tuple[wire.Op, ...]:
    """A gather in each forward, and an all_reduce for which all wait for the straggler."""
    ops = []
    for step in range(STEPS):
        begin = BEGIN + step * STEP_NS - clock(rank)
        late = 60 * MS if rank == STRAGGLER else rank % 3 * MS
        gather = begin + 40 * MS + late // 2
        reduce = begin + 120 * MS + late
        end = begin + 222 * MS
        ops += [
            wire.Op(
                2 * step + 1, TP, step + 1, GATHER, TP_SITE, gather, gather + 9 * MS, MAIN, True
            ),
            wire.Op(2 * step + 2, WORLD, 8807 + step, GRAD, SITE, reduce, end, MAIN, True),
        ]
    return tuple(ops)


def lane_view(rank: int, ops: tuple[wire.Op, ...] | None = None) -> JudgedRank:
    """A rank that trains; `ops` in the place of its own."""
    ops = ops_of_rank(rank) if ops is None else ops
    pending = tuple(op for op in ops if op.pending)
    host_now = NOW - clock(rank)
    last = max((op.number for op in ops if op.group == WORLD), default=0)
    tensor = "0-3" if rank < 4 else "4-7"
    return JudgedRank(
        rank=rank,
        host=f"node{rank // 4}",
        key=rank,
        identity=wire.Identity(90_040 + rank, 1, rank, rank % 4, JOB, main_ident=MAIN),
        state="blocked" if pending else "moving",
        state_since_ns=NOW - S,
        reported_ns=NOW - S // 10,
        clock_ns=clock(rank),
        status=wire.RankStatus(1, host_now - S // 10, len(ops), step=STEPS),
        groups={
            WORLD: wire.Group(WORLD, "0", "dp:0", "nccl", "0-7"),
            TP: wire.Group(TP, f"t{rank // 4}", f"tp:{rank // 4}", "nccl", tensor),
        },
        group_progress={
            WORLD: wire.GroupProgress(WORLD, last, 0, host_now - S // 10),
            TP: wire.GroupProgress(TP, sum(op.group == TP for op in ops), 0, host_now - S // 10),
        },
        pending=pending,
        blocked_on=pending[0] if pending else None,
        snapshot=wire.Snapshot(rank, host_now, None, ops=ops),
    )


def trains(*changed: JudgedRank, recorded: bool = False) -> Frame:
    """The frame of the eight ranks, some of them changed."""
    views = {rank: lane_view(rank) for rank in range(RANKS)}
    views |= {view.rank: view for view in changed}
    job = replace(JOB, world_size=RANKS)
    return Frame(
        NOW,
        WALL,
        "healthy",
        NOW - 600 * S,
        job,
        up_s=600.0,
        hosts=tuple(
            HostView(f"node{n}", "reporting", reported_ns=NOW, clock_error_ns=ERROR_NS)
            for n in range(2)
        ),
        ranks=views,
        groups=group_views(views.values()),
        coverage=Coverage(RANKS, RANKS),
        recorded=Recorded("capture", "frtop-llama.cap", WALL) if recorded else None,
    )


def differs() -> Frame:
    """Rank 3's last all_reduce has another dtype, rank 6 has not issued it."""
    ops = list(ops_of_rank(3))
    other = wire.Signature(
        "all_reduce", reduce="avg", inputs=(wire.TensorSpec("float32", (26214400,)),)
    )
    ops[-1] = replace(ops[-1], signature=other, site=replace(SITE, line=240), done_ns=0)
    waits = [
        lane_view(rank, (*ops_of_rank(rank)[:-1], replace(ops_of_rank(rank)[-1], done_ns=0)))
        for rank in (0, 1, 2, 4, 5, 7)
    ]
    frame = trains(*waits, lane_view(3, tuple(ops)), lane_view(6, ops_of_rank(6)[:-1]))
    return replace(frame, now_ns=NOW + 5 * S, wall_ns=WALL + 5 * S)


def marks_of_rank(rank: int) -> tuple[wire.Mark, ...]:
    """Steps of data, forward, backward and optimizer, as far as a recorder is asked for them."""
    marks = []
    late = 60 * MS if rank == STRAGGLER else rank % 3 * MS
    for step in range(STEPS):
        begin = BEGIN + step * STEP_NS - clock(rank)
        times = (0, 22, 112 + late // MS, 222, 236)
        kinds = ("fetch", "forward", "backward", "optimizer")
        for kind, first, last in zip(kinds, times, times[1:], strict=False):
            if kind != "backward":
                marks.append(wire.Mark(kind, begin + first * MS, begin + last * MS))
        marks.append(wire.Mark("step", begin, begin + STEP_NS - MS, 2199 + step))
    return tuple(marks)


def phases() -> Frame:
    """The same with steps, fetches and phases, as a recorder tells of them."""
    views = []
    for rank in range(RANKS):
        view = lane_view(rank)
        assert view.snapshot is not None
        snapshot = replace(view.snapshot, marks=marks_of_rank(rank))
        views.append(replace(view, snapshot=snapshot))
    return trains(*views)


SCENES = {"trains": trains, "differs": differs, "phases": phases}


def newest(frame: Frame, ops: int) -> Frame:
    """The frame of somebody who has only the last ops of each rank so far."""
    ranks = {
        rank: replace(view, snapshot=replace(view.snapshot, ops=view.snapshot.ops[-ops:]))
        for rank, view in frame.ranks.items()
        if view.snapshot is not None
    }
    return replace(frame, ranks=ranks)

"""A rank's activity in one line, above all the culprit's."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from frtop_probe import wire
from frtop_tui.diagnosis.causes import Cause
from frtop_tui.diagnosis.model import Frame, JudgedRank, Why
from frtop_tui.job.model import RankState
from frtop_tui.text.activity import (
    blame_reasons,
    cpu_share,
    describe_activity,
    describe_activity_and_line,
    source_line,
)
from frtop_tui.widgets.process_pane import process_lines
from frtop_tui.widgets.rank_table import RowContext, columns, most_relevant
from frtop_tui.widgets.spans import text_of
from screens import scenes
from screens.driving import driven

OWN = (scenes.trace_frame("step", scenes.SITE.file, 59, "time.sleep(1e9)"), *scenes.LOADING[6:])


def absent(
    cause: Cause | None = None, state: RankState = "late", frames: tuple[wire.TraceFrame, ...] = OWN
) -> tuple[JudgedRank, dict[int, Why]]:
    """Rank 3, which has no DataLoader, with a stack and the cause of its verdict."""
    view = scenes.rank_view(3, state)
    assert view.status is not None
    status = wire.RankStatus(1, scenes.HOST_NOW - 58 * scenes.S, 9, step=2203)
    view = replace(view, status=status, snapshot=scenes.snapshot(3, frames), blocked_on=None)
    return view, ({3: Why.of(cause, "in words")} if cause else {})


@pytest.mark.parametrize(
    ("cause", "state", "words"),
    [
        ("sleeping", "late", "sleeps  train.py:59"),
        ("lock", "late", "waits for a lock  train.py:59"),
        ("gil", "silent", "holds the GIL  train.py:59"),
        ("stopped", "stopped", "by a signal  train.py:59"),
        ("neighbour", "late", "shares its GPU  train.py:59"),
        ("unknown", "late", "in step  train.py:59"),
        (None, "late", "in step  train.py:59"),
        (None, "silent", "no heartbeat for 58s  train.py:59"),
    ],
)
def test_a_rank_in_no_op_shows_its_cause_and_line(
    cause: Cause | None, state: RankState, words: str
) -> None:
    view, why = absent(cause, state)
    assert describe_activity_and_line(view, scenes.NOW, why) == words
    assert source_line(view) == "train.py:59"


def test_a_rank_in_file_io_shows_the_call_and_the_file() -> None:
    view, why = absent("file_io")
    process = wire.Process(view.identity.pid, "D", "python", "", "read", "/mnt/shard-7")
    snapshot = wire.Snapshot(3, scenes.HOST_NOW, None, (process,))
    assert (
        describe_activity(replace(view, snapshot=snapshot), scenes.NOW, why) == "read /mnt/shard-7"
    )
    assert (
        describe_activity(replace(view, snapshot=snapshot), scenes.NOW, {}) == "read /mnt/shard-7"
    )


def test_what_a_stack_or_a_silent_rank_cannot_tell_is_not_shown() -> None:
    moving, _ = absent(state="moving")
    assert describe_activity_and_line(replace(moving, pending=()), scenes.NOW, {}) == ""
    pending = (scenes.op(9, 9, 1.0),)
    said = describe_activity(replace(moving, pending=pending), scenes.NOW, {})
    assert said == "1 op pending, not blocked"
    silent, _ = absent(state="silent")
    assert "pending" not in describe_activity(replace(silent, pending=pending), scenes.NOW, {})


def killed_later() -> Frame:
    """Rank 2 was killed because of what rank 37 does."""
    frame = scenes.hung()
    ranks = dict(frame.ranks)
    ranks[2] = replace(
        ranks[2], state="dead", exit_info=wire.ExitInfo(scenes.HOST_NOW - scenes.S, signal=6)
    )
    return replace(frame, ranks=ranks)


def test_culprits_come_before_ranks_that_died_of_the_hang() -> None:
    assert [view.rank for view in most_relevant(killed_later(), 3)] == [37, 2, 0]


def test_the_first_of_two_verdicts_on_a_rank_counts() -> None:
    first = scenes.hung().verdicts[0]
    second = replace(first, why=Why("lock", "software", ""))
    assert blame_reasons(replace(scenes.hung(), verdicts=(first, second)))[37] is first.why


def test_an_ended_process_has_no_state() -> None:
    view = replace(scenes.rank_view(3, "moving"), process=wire.Process(90_043, "R", "python"))
    (state,) = (one for one in columns((), RowContext()) if one.title == "proc")
    assert state.cell(view) == ("R", "")
    assert state.cell(replace(view, exit_info=wire.ExitInfo(1, exit_code=1))) == ("", "")


async def test_culprits_come_first_in_the_table_with_their_activity() -> None:
    view, _ = absent()
    frame = killed_later()
    late = replace(view, rank=37, host="node4")
    why = Why("sleeping", "software", "sleeps")
    frame = replace(
        frame,
        ranks={**frame.ranks, 37: late},
        verdicts=(replace(frame.verdicts[0], why=why),),
    )
    async with driven(frame) as app:
        await app.sees("late · sleeps  train.py:59")
        await app.press("2")
        await app.sees("sleeps  train.py:59", "ended by signal 6")
        assert app.text().index("L late") < app.text().index("D dead")
        await app.resize(160, 40)
        await app.sees("sleeps      ")


def test_cpu_share_needs_two_snapshots() -> None:
    old = wire.Snapshot(1, 10**9, processes=(wire.Process(7, "R", cpu_ns=0),))
    new = wire.Snapshot(1, 3 * 10**9, processes=(wire.Process(7, "R", cpu_ns=10**9),))
    assert cpu_share(new, old, 7) == pytest.approx(0.5)
    assert cpu_share(new, None, 7) is None
    assert cpu_share(new, old, 8) is None
    assert cpu_share(old, new, 7) is None


def test_the_details_of_a_rank_name_settings_that_hide_ops_on_devices() -> None:
    rank = scenes.hung().ranks[scenes.CULPRIT]
    settings = (("TORCH_NCCL_BLOCKING_WAIT", "1"),)
    identity = replace(rank.identity, torch="2.13.0", settings=settings)
    nccl = {number: replace(group, backend="nccl") for number, group in rank.groups.items()}
    rows = process_lines(replace(rank, identity=identity, groups=nccl), 200, scenes.NOW)
    blind = next(row for row in rows if "next time set TORCH_NCCL_BLOCKING_WAIT=0" in text_of(row))
    assert blind[-1][1] == "warn"
    gloo = {number: replace(group, backend="gloo") for number, group in rank.groups.items()}
    rows = process_lines(replace(rank, identity=identity, groups=gloo), 200, scenes.NOW)
    assert not any("TORCH_NCCL" in text_of(row) for row in rows)


async def test_the_list_of_the_overview_has_room_for_what_ranks_do() -> None:
    async with driven(scenes.hung(), size=(120, 40)) as app:
        for size in ((120, 40), (200, 60)):
            await app.resize(*size)
            await app.sees("all_reduce #8812 dp:0", "most relevant ranks")
            table = app.text().partition("most relevant ranks")[2]
            assert "all_reduce #8812" in table
            assert "DataLoader worker 2" in table

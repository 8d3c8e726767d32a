"""What stands beside a rank in one line: of the culprit most of all."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from frtop_probe import wire
from frtop_tui.diagnosis.model import Frame, JudgedRank, Why
from frtop_tui.job.model import RankState
from frtop_tui.widgets.doing import causes, doing, doing_at, line_of
from frtop_tui.widgets.rank_table import Moment, columns, of_interest

from . import scenes
from .driving import driven

OWN = (scenes.frame_of("step", scenes.SITE.file, 59, "time.sleep(1e9)"), *scenes.LOADING[6:])


def absent(
    cause: str = "", posture: RankState = "late", frames: tuple[wire.TraceFrame, ...] = OWN
) -> tuple[JudgedRank, dict[int, Why]]:
    """Rank 3, which has no DataLoader, with a stack and the cause of its verdict."""
    view = scenes.rank_view(3, posture)
    assert view.status is not None
    present = wire.RankStatus(1, scenes.HOST_NOW - 58 * scenes.S, 9, step=2203)
    view = replace(view, status=present, snapshot=scenes.look(3, frames), blocked_on=None)
    return view, ({3: Why(cause, "software", "in words")} if cause else {})


@pytest.mark.parametrize(
    ("cause", "posture", "words"),
    [
        ("sleeping", "late", "sleeps  train.py:59"),
        ("lock", "late", "waits for a lock  train.py:59"),
        ("gil", "silent", "holds the GIL  train.py:59"),
        ("stopped", "stopped", "stopped  train.py:59"),
        ("some_new_cause", "late", "some new cause  train.py:59"),
        ("unknown", "late", "in step  train.py:59"),
        ("", "late", "in step  train.py:59"),
        ("", "silent", "no beat for 58s  train.py:59"),
    ],
)
def test_a_rank_in_no_op_says_what_it_does_and_where(
    cause: str, posture: RankState, words: str
) -> None:
    view, why = absent(cause, posture)
    assert doing_at(view, scenes.NOW, why) == words
    assert line_of(view) == "train.py:59"


def test_a_rank_in_a_file_names_the_call_and_the_file() -> None:
    view, why = absent("file_io")
    process = wire.Process(view.identity.pid, "D", "python", "", "read", "/mnt/shard-7")
    look = wire.Snapshot(3, scenes.HOST_NOW, None, (process,))
    assert doing(replace(view, snapshot=look), scenes.NOW, why) == "read /mnt/shard-7"
    assert doing(replace(view, snapshot=look), scenes.NOW, {}) == "read /mnt/shard-7"


def test_a_rank_that_moves_is_not_described_by_a_passing_stack() -> None:
    view, _ = absent(posture="moving")
    assert doing_at(replace(view, pending=()), scenes.NOW, {}) == ""


def test_pending_ops_are_not_said_of_a_rank_that_does_not_speak() -> None:
    view, _ = absent(posture="silent")
    waiting = replace(view, pending=(scenes.op(9, 9, 1.0),))
    assert "pending" not in doing(waiting, scenes.NOW, {})
    assert doing(replace(waiting, state="moving"), scenes.NOW, {}) == "1 op pending, not blocked"


def killed_later() -> Frame:
    """Rank 2 was killed because of what rank 37 does."""
    frame = scenes.hung()
    ranks = dict(frame.ranks)
    ranks[2] = replace(
        ranks[2], state="dead", exit_info=wire.ExitInfo(scenes.HOST_NOW - scenes.S, signal=6)
    )
    return replace(frame, ranks=ranks)


def test_the_cause_stands_before_what_follows_from_it() -> None:
    assert [view.rank for view in of_interest(killed_later(), 3)] == [37, 2, 0]


def test_of_two_verdicts_on_a_rank_the_first_counts() -> None:
    first = scenes.hung().verdicts[0]
    second = replace(first, why=Why("lock", "software", ""))
    assert causes(replace(scenes.hung(), verdicts=(first, second)))[37] is first.why


def test_a_process_that_is_gone_has_no_state() -> None:
    view = replace(scenes.rank_view(3, "moving"), process=wire.Process(90_043, "R", "python"))
    (state,) = (one for one in columns((), Moment()) if one.title == "proc")
    assert state.cell(view) == ("R", "")
    assert state.cell(replace(view, exit_info=wire.ExitInfo(1, exit_code=1))) == ("", "")


async def test_culprits_lead_the_table_and_say_what_they_do() -> None:
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
        await app.pilot.resize_terminal(160, 40)
        await app.sees("sleeps      ")

"""An agent on a full host reads seldom: what it read is true of then, and not of now."""

from __future__ import annotations

import pytest

from diagnosis.scenes import only, told
from diagnosis.unprepared import Unprepared
from frtop_tui.diagnosis.model import Frame


def waits_for_rank_2(*, read_after_s: dict[int, float]) -> Frame:
    """Ranks 0, 1 and 3 have been in an op for 40 s; some ranks were read only until then."""
    scene = Unprepared(4)
    scene.waits([0, 1, 3], "all_reduce", for_s=0)
    scene.sleeps(2)
    begun = scene.now
    scene.read_at = {rank: begun + after for rank, after in read_after_s.items()}
    return scene.settle(40)


def test_all_are_read_and_the_absent_one_is_named() -> None:
    assert only(waits_for_rank_2(read_after_s={})).culprits == (2,)


@pytest.mark.parametrize(("read_after_s", "named"), [(-2.0, False), (1.0, True)])
def test_who_was_not_read_since_others_came_may_be_with_them(
    read_after_s: float, *, named: bool
) -> None:
    found = waits_for_rank_2(read_after_s={2: read_after_s})
    assert any(verdict.culprits == (2,) for verdict in found.verdicts) == named
    assert found.health != "healthy"


def test_where_the_host_reports_it_is_not_called_missing() -> None:
    verdict = only(waits_for_rank_2(read_after_s={2: -2.0}))
    assert verdict.headline.endswith("what rank 2 did since could not be read: it may be any of"
                                     " them, or none")  # fmt: skip
    assert "frtop doctor" in verdict.next


def test_a_wait_grows_no_older_than_its_last_reading() -> None:
    found = waits_for_rank_2(read_after_s=dict.fromkeys((0, 1, 3), 1.0))
    assert not found.verdicts


@pytest.mark.parametrize(("read_after_s", "kinds"), [(0.5, []), (6.0, ["deadlock"])])
def test_messages_that_only_stacks_show_are_as_old_as_what_is_read_of_their_ranks(
    read_after_s: float, kinds: list[str]
) -> None:
    """In a pipeline that moves every stack shows a receive, and c10d shows that ops come and go."""
    scene = Unprepared(2)
    scene.does([0, 1], "all_reduce", ago=0)
    for rank, source in ((0, 1), (1, 0)):
        scene.in_call(rank, "recv", (("src", f"{source}"), ("group", '"default_pg"')))
    scene.read_at = dict.fromkeys((0, 1), scene.now + read_after_s)
    assert [verdict.kind for verdict in scene.settle(8).verdicts] == kinds


def test_where_only_stacks_are_known_nobody_is_named_by_one_look() -> None:
    scene = Unprepared(4)
    scene.readable = False
    for rank in (0, 1, 3):
        scene.in_call(rank, "all_reduce", (("group", '"default_pg"'),))
    scene.sleeps(2)
    assert told(scene.settle(1), "kind", "culprits") == ("undecided", ())
    assert only(scene.settle(20)).culprits == (2,)

"""Groups across ranks, and how groups, jobs and ranks are written."""

from __future__ import annotations

import pytest
from msgspec import structs

from frtop_probe import wire
from frtop_tui.job.groups import Groups, group_views, members_of
from frtop_tui.job.model import ObservedRank
from frtop_tui.job.naming import folded, group_label, job_place, job_title, shortened

SECOND = 1_000_000_000
JOB = wire.Job("node0", 29500, 4)


def view(rank: int, groups: list[wire.Group], numbers: dict[int, int]) -> ObservedRank:
    return ObservedRank(
        rank=rank, host="h", key=rank, identity=wire.Identity(rank, 1, rank, rank, JOB),
        state="moving", state_since_ns=0, reported_ns=0, clock_ns=rank * SECOND,
        groups={group.id: group for group in groups},
        group_progress={
            number: wire.GroupProgress(number, at, 0, (9 - rank) * SECOND)
            for number, at in numbers.items()
        },
    )  # fmt: skip


def group(number: int, name: str, ranks: str, epoch: int = 0, exact: bool = True) -> wire.Group:
    return wire.Group(number, name, "", "gloo", ranks, exact, epoch)


def test_ranks_may_number_the_same_group_differently() -> None:
    found = group_views(
        [view(0, [group(1, "0", "0-1")], {1: 5}), view(1, [group(4, "0", "0-1")], {4: 6})]
    )
    assert len(found) == 1
    assert (found[0].number, found[0].late, found[0].members) == (6, (0,), (0, 1))


def test_a_name_with_other_members_or_in_another_epoch_is_another_group() -> None:
    found = group_views([view(0, [group(1, "1", "0-1")], {}), view(2, [group(1, "1", "2-3")], {})])
    assert [one.key.ranks for one in found] == ["0-1", "2-3"]
    found = group_views([view(0, [group(1, "0", "0"), group(2, "0", "0", 1)], {})])
    assert [one.key.epoch for one in found] == [0, 1]
    found = group_views([view(0, [group(1, "7", "0"), group(2, "0", "0-3")], {})])
    assert [one.key.name for one in found] == ["0", "7"]  # large ones come first
    assert members_of("nonsense") == ()


def test_a_member_without_an_op_there_is_at_zero() -> None:
    one = group(1, "0", "0-1")
    assert group_views([view(0, [one], {1: 1}), view(1, [one], {})])[0].late == (1,)


def test_the_last_op_is_that_of_a_rank_at_the_highest_number() -> None:
    one = group(1, "0", "0-2")
    views = [view(0, [one], {1: 5}), view(1, [one], {1: 6}), view(2, [one], {1: 6})]
    op = wire.Op(9, 1, 6, wire.Signature("barrier"), None, SECOND)
    stale = wire.Op(9, 1, 5, wire.Signature("all_reduce"), None, SECOND)
    sent = wire.Op(9, 1, 6, wire.Signature("send"), None, SECOND, p2p=True)
    views[0].group_progress[1] = wire.GroupProgress(1, 5, 0, SECOND, stale)  # type: ignore[index]
    views[1].group_progress[1] = wire.GroupProgress(1, 6, 6, SECOND, sent)  # type: ignore[index]
    assert group_views(views)[0].last is None
    views[2].group_progress[1] = wire.GroupProgress(1, 6, 0, SECOND, op)  # type: ignore[index]
    assert group_views(views)[0].last == op


def test_numbers_of_a_relative_group_are_not_compared() -> None:
    found = group_views(
        [
            view(0, [group(1, "0", "0-1", exact=False)], {1: 5}),
            view(1, [group(1, "0", "0-1")], {1: 9}),
        ]
    )
    assert not found[0].exact
    assert found[0].late == ()


def test_idle_is_counted_on_the_operators_clock() -> None:
    one = group(1, "0", "0-1")
    found = group_views([view(0, [one], {1: 5}), view(1, [one], {1: 5})])
    assert found[0].idle_s(12 * SECOND) == pytest.approx(3)


@pytest.mark.parametrize(("name", "description", "label"), [
    ("0", "default_pg", "default_pg"),
    ("3", "undefined", "group 3"),
    ("3", "", "group 3"),
    ("dp", "", "dp"),
    ("4", "mesh_tp", "mesh_tp"),
])  # fmt: skip
def test_group_labels(name: str, description: str, label: str) -> None:
    assert group_label(name, description) == label


@pytest.mark.parametrize(("ranks", "text"), [
    ([3], "rank 3"), ([0, 1, 2], "ranks 0-2"), ([2, 0], "ranks 0,2"), ([1, 1], "rank 1"),
])  # fmt: skip
def test_ranks_are_folded(ranks: list[int], text: str) -> None:
    assert folded(ranks) == text


def test_long_lists_of_ranks_still_fit_a_line() -> None:
    text = folded(range(0, 4000, 2))
    assert len(text) < 80
    assert "more runs" in text
    assert shortened("0-3") == "0-3"


@pytest.mark.parametrize(("job", "ended", "text"), [
    (wire.Job("a", 1, 2, name="train.py"), False, "train.py (a:1)"),
    (wire.Job("a", 1, 2, name="train.py"), True, "train.py (a:1, ended)"),
    (wire.Job("a", 1, 2), False, "a:1"),
    (wire.Job("a", 1, 2), True, "a:1 (ended)"),
])  # fmt: skip
def test_two_jobs_with_one_name_are_distinguished(job: wire.Job, ended: bool, text: str) -> None:
    assert job_place(job, ended=ended) == text


def test_a_job_without_a_name_has_its_run_id_or_address() -> None:
    assert job_title(wire.Job("a", 1, 2, "r", name="train.py")) == "train.py"
    assert job_title(wire.Job("a", 1, 2, "r")) == "r"
    assert job_title(JOB) == "node0:29500"


def test_a_group_that_its_ranks_have_destroyed_is_not_shown() -> None:
    left = structs.replace(group(1, "0", "0-1"), gone=True)
    groups = Groups()
    before = [view(0, [group(1, "0", "0-1")], {1: 5}), view(1, [group(1, "0", "0-1")], {1: 6})]
    for one in before:
        groups.put(None, one)
    groups.put(before[0], view(0, [left], {1: 5}))
    (found,) = groups.views()
    assert (found.number, found.late) == (6, ())
    groups.put(before[1], view(1, [left], {1: 6}))
    assert groups.views() == ()

"""Who is slow, by how much, and who is not: out of statistics made by hand."""

from __future__ import annotations

import random
from collections.abc import Mapping
from statistics import median
from typing import Any, Final

import pytest
from msgspec.structs import replace

from diagnosis.slow_jobs import BEGUN_NS, MS, SITE, Meeting, SteppingJob, data_parallel
from frtop_probe import wire
from frtop_probe.statistics.samples import is_chosen
from frtop_tui.diagnosis.cases.slow.detect import compared, search
from frtop_tui.diagnosis.cases.slow.late_ranks import LateRanks
from frtop_tui.diagnosis.cases.slow.slow_links import SlowLink
from frtop_tui.diagnosis.cases.slow.straggling import chance
from frtop_tui.job.statistics import JobStatistics

OTHER_SITE: Final = wire.Site(SITE.file, SITE.line + 1, SITE.function)


def late(job: SteppingJob, *, steps: bool = True, **shape: Any) -> dict[tuple[int, ...], float]:
    """Who is late beyond doubt, and by how many ms; suspicions raise here."""
    found, _ = search(job.statistics(steps=steps), job.frame(**shape))
    assert all(one.sure for one in found)
    return {one.ranks: one.late_ns / 1e6 for one in found}


def one_late(job: SteppingJob, statistics: JobStatistics | None = None) -> LateRanks:
    """The only ones who are late."""
    [found], _ = search(statistics or job.statistics(), job.frame())
    return found


def unseen(statistics: JobStatistics) -> JobStatistics:
    """Nobody is seen to wait."""
    steps = {
        rank: tuple(replace(step, blocked_ns=0) for step in those)
        for rank, those in statistics.steps.items()
    }
    return replace(statistics, steps=steps)


def sampled(statistics: JobStatistics, stride: int, name: str) -> JobStatistics:
    """Of the ops of groups with that name one in `stride` is told."""
    groups = tuple(
        replace(
            group,
            stride=stride,
            arrivals=tuple(one for one in group.arrivals if is_chosen(one.number, stride)),
        )
        if group.group.name.startswith(name)
        else group
        for group in statistics.groups
    )
    return replace(statistics, groups=groups)


def two_by_two(inner: float, between: float) -> SteppingJob:
    """Two pairs that reduce eight times in a step, and pairs across that reduce once."""
    job = SteppingJob(4)
    pairs, across = ((0, 1), (2, 3)), ((0, 2), (1, 3))
    job.meetings = [Meeting(pairs, lambda rank, step: inner, name="tp") for _ in range(8)]
    job.meetings.append(Meeting(across, lambda rank, step: between, name="dp"))
    return job


@pytest.mark.parametrize("steps", [True, False])
@pytest.mark.parametrize("world", [2, 3, 64])
def test_a_straggler_is_named_with_its_lateness(world: int, steps: bool) -> None:
    job = data_parallel(world).run(120, late={1: 30.0})
    found = late(job, steps=steps)
    assert found == {(1,): pytest.approx(30, rel=0.1)}


def test_two_stragglers_are_named_together() -> None:
    job = data_parallel(8).run(120, late={1: 60.0, 5: 64.0})
    assert late(job) == {(1, 5): pytest.approx(62, rel=0.1)}


def test_nobody_is_named_where_nobody_is_slower() -> None:
    for seed in range(12):
        for world in (2, 4, 16):
            assert not late(data_parallel(world, noise=0.3, seed=seed).run(100))


def test_a_cost_that_nobody_feels_is_no_verdict() -> None:
    assert not late(data_parallel(noise=0.001).run(120, late={1: 5.0}))


def test_a_fault_that_began_within_the_window_is_found_with_its_begin() -> None:
    job = data_parallel().run(120)
    begun = job.ended[0]
    job.run(60, late={1: 50.0})
    found = one_late(job)
    assert found.ranks == (1,)
    assert found.since_ns / 1e6 == pytest.approx(begun, abs=1000)
    assert not found.at_least


def test_a_fault_that_ended_is_no_verdict() -> None:
    job = data_parallel().run(100, late={1: 50.0})
    assert late(job)
    assert not late(job.run(60))


@pytest.mark.parametrize("error_ns", [None, 60_000_000])
def test_clocks_may_be_all_of_it(error_ns: int | None) -> None:
    assert not late(data_parallel(error_ns=error_ns).run(120, late={1: 50.0}))


def test_one_op_of_eight_is_sampled() -> None:
    """Of a step's eight ops one is late, and it is sampled in one step of eight."""
    job = SteppingJob(4, stride=8)
    job.meetings = [Meeting((job.everybody,), lambda rank, step: 8.0) for _ in range(7)]
    job.meetings.append(Meeting((job.everybody,), lambda rank, step: 8.0 + 40.0 * (rank == 2)))
    job.run(500)
    found = one_late(job)
    assert found.ranks == (2,)
    assert found.late_ns / 1e6 == pytest.approx(40, rel=0.1)
    assert found.share == pytest.approx(40 / 108, rel=0.25)


@pytest.mark.parametrize("stride", [4, 64])
def test_steps_show_what_few_sampled_ops_cannot(stride: int) -> None:
    """One op of ten is late, as of FSDP2: of most steps it is not sampled."""
    job = SteppingJob(4, stride=stride)
    job.meetings = [Meeting((job.everybody,), lambda rank, step: 10.0) for _ in range(10)]
    job.run(200)
    assert not late(job)
    begun = job.ended[0]
    job.run(200, late={1: 40.0})
    found = one_late(job)
    assert found.ranks == (1,)
    assert found.sure
    assert found.share == pytest.approx(40 / 145, rel=0.1)
    assert found.since_ns / 1e6 == pytest.approx(begun, abs=2000)


def test_steps_of_their_own_make_nobody_late() -> None:
    """Who does more after its ops than others, and comes to none of them late, holds up nobody."""
    job = SteppingJob(4, stride=8)
    job.meetings = [Meeting((job.everybody,), lambda rank, step: 10.0) for _ in range(10)]
    job.run(200)
    whole = job.statistics()
    more = tuple(replace(step, blocked_ns=0) for step in whole.steps[1])
    steps = {
        **whole.steps,
        0: tuple(replace(step, blocked_ns=40_000_000) for step in whole.steps[0]),
        1: more,
    }
    assert not search(replace(whole, steps=steps), job.frame())[0]


@pytest.mark.parametrize("stride", [1, 2, 4])
def test_steps_without_a_sampled_op_cost_as_much_as_the_others(stride: int) -> None:
    """One op a step, which nobody is seen to wait for, as of DDP: of every so many one is told."""
    job = data_parallel(2).run(400, late={1: 40.0})
    job.stride = stride
    whole = job.statistics()
    found = one_late(job, unseen(whole))
    took = median(step.took_ns for step in whole.steps[0])
    assert found.ranks == (1,)
    assert found.share == pytest.approx(40e6 / took, rel=0.15)


@pytest.mark.parametrize("waits", [True, False])
def test_steps_of_which_few_are_told_do_not_hide_the_time_between_them(waits: bool) -> None:
    """Of 15 s at a time agents tell the last 48 steps: of quick ones that is a tenth."""
    job = data_parallel(2, work=30.0).run(500, late={1: 15.0})
    job.stride = 4
    whole = job.statistics()
    begun_ns = whole.steps[0][0].end_ns
    told = {
        rank: tuple(
            step if waits else replace(step, blocked_ns=0)
            for step, later in zip(those, those[48:], strict=False)
            if (later.end_ns - begun_ns) // 15_000_000_000
            > (step.end_ns - begun_ns) // 15_000_000_000
        )
        for rank, those in whole.steps.items()
    }
    assert 0 < len(told[0]) < 100
    found = one_late(job, replace(whole, steps=told))
    assert found.ranks == (1,)
    assert found.sure
    assert found.share == pytest.approx(15 / 45.5, rel=0.15)


def test_of_lines_that_cost_alike_always_the_same_is_named_with_its_own_kind() -> None:
    kinds = ("all_gather", "reduce_scatter")
    named = set()
    for steps in range(100, 110):
        job = SteppingJob(4)
        job.meetings = [
            Meeting(
                (job.everybody,),
                lambda rank, step: 8.0 + 6.0 * (rank == 2),
                kind=kinds[n % 2],
                site=wire.Site("/src/parallel.py", 88 + n, "forward"),
            )
            for n in range(4)
        ]
        found = one_late(job.run(steps))
        assert found.site is not None
        named.add((found.kind, found.site.line))
    assert named == {("all_gather", 88)}


def test_who_costs_enough_only_perhaps_is_suspected() -> None:
    """Few ops are sampled, and neither steps nor waits are known: it costs 1 to 20 %."""
    job = data_parallel(4, work=20.0).run(3000, late={1: 5.0})
    job.stride = 32
    found = one_late(job, job.statistics(steps=False))
    assert (found.ranks, found.sure) == ((1,), False)
    assert found.share < 0.05 < found.most_share


@pytest.mark.parametrize(("world", "noise"), [(2, 0.01), (4, 0.4), (16, 0.1)])
def test_what_is_said_to_show_is_found(world: int, noise: float) -> None:
    """The same steps once more, in which one rank costs so much of them."""
    job = data_parallel(world, noise=noise).run(200)
    seen = compared(replace(job.frame(), statistics=job.statistics()))
    assert seen.ns > 20e9
    assert 0.05 < seen.share < 1
    took = (job.ended[0] - BEGUN_NS / MS) / 200
    costs = took * seen.share / (1 - seen.share)
    assert (1,) in suspected(data_parallel(world, noise=noise).run(200, late={1: 1.01 * costs}))
    assert not suspected(data_parallel(world, noise=noise).run(200))


def suspected(job: SteppingJob) -> set[tuple[int, ...]]:
    """Who is late, beyond doubt or not."""
    return {one.ranks for one in search(job.statistics(), job.frame())[0]}


def test_buckets_that_overlap_count_once() -> None:
    job = SteppingJob(4)
    job.meetings = [
        *(Meeting((job.everybody,), lambda rank, step: 20.0, waits=False) for _ in range(4)),
        Meeting((job.everybody,), lambda rank, step: 20.0),
    ]
    job.run(150, late={1: 40.0})
    found = one_late(job)
    assert found.ranks == (1,)
    assert found.late_ns / 1e6 == pytest.approx(40, rel=0.1)
    assert found.share == pytest.approx(40 / 140.5, rel=0.15)


def with_a_loss(job: SteppingJob, *, buckets: bool = False) -> SteppingJob:
    """Its ops are waited for where nobody sees it, as those of DDP; then the script adds up a loss,
    and that wait is seen."""
    for meeting in job.meetings:
        meeting.seen = False
        meeting.waits = not buckets
    job.meetings[-1].waits = True
    loss = Meeting((job.everybody,), lambda rank, step: 1.0, lambda _: 0.1, name="loss")
    job.meetings.append(loss)
    return job


@pytest.mark.parametrize(("stride", "buckets"), [(1, False), (1, True), (4, True), (16, True)])
def test_one_wait_that_is_seen_does_not_hide_those_that_are_not(stride: int, buckets: bool) -> None:
    job = SteppingJob(4)
    job.meetings = [Meeting((job.everybody,), lambda rank, step: 10.0) for _ in range(8)]
    job = with_a_loss(job, buckets=buckets).run(300, late={2: 25.0})
    whole = job.statistics()
    found = one_late(job, sampled(whole, stride, "dp"))
    took = median(step.took_ns for step in whole.steps[0])
    assert found.ranks == (2,)
    assert found.sure
    assert found.share == pytest.approx(25e6 / took, rel=0.4)  # buckets of a step overlap


def test_who_waits_unseen_in_one_group_is_not_slow_in_another() -> None:
    job = with_a_loss(two_by_two(10.0, 5.0))
    job.meetings[0].work = lambda rank, step: 10.0 + 20.0 * (rank == 1)
    job.run(120)
    assert late(job) == {(1,): pytest.approx(20, rel=0.1)}
    job = with_a_loss(two_by_two(5.0, 20.0))
    job.meetings[-2].work = lambda rank, step: 20.0 + 15.0 * (rank == 2)
    assert late(job.run(200)) == {(2,): pytest.approx(15, rel=0.1)}
    assert not late(with_a_loss(two_by_two(10.0, 5.0)).run(200))


@pytest.mark.parametrize(("stride", "delay"), [(1, 8.0), (4, 0.0), (16, 8.0), (16, 30.0)])
def test_waits_are_seen_in_one_group_and_not_in_another(stride: int, delay: float) -> None:
    """A straggler of a pair; the ops across take 30 ms, and nobody sees who waits for them."""
    job = two_by_two(10.0, 5.0)
    job.stride = stride
    job.meetings[0].work = lambda rank, step: 10.0 + delay * (rank == 1)
    job.meetings[-1].seen = False
    job.meetings[-1].transfer = lambda _: 30.0
    job.run(300)
    assert late(job) == ({(1,): pytest.approx(delay, rel=0.1)} if delay else {})


@pytest.mark.parametrize(("stride", "steps"), [(1, 55), (4, 20), (16, 30), (32, 55)])
def test_neighbours_of_a_straggler_are_not_accused_of_its_lateness(stride: int, steps: int) -> None:
    """Rank 25 delays the eight ranks of its inner group, and each of them comes late to an outer
    one. Of the inner group's many ops few are sampled, of the outer groups' all."""
    inner = tuple(tuple(range(8 * n, 8 * n + 8)) for n in range(4))
    outer = tuple(tuple(range(n, 32, 8)) for n in range(8))
    job = SteppingJob(32)
    job.meetings = [
        *(Meeting(inner, lambda rank, _: 36.0 + 6.0 * (rank == 25), name="tp") for _ in range(25)),
        *(Meeting(outer, lambda *_: 5.0, name="dp") for _ in range(3)),
    ]
    statistics = job.run(steps).statistics()
    found, _ = search(sampled(statistics, stride, "tp"), job.frame())
    assert {one.ranks for one in found} <= {(25,)}
    if stride * 3 < 25:  # else of many steps no op is sampled
        assert [one.ranks for one in found] == [(25,)]


@pytest.mark.parametrize("stride", [1, 4, 16])
def test_neighbours_are_not_accused_where_neither_steps_nor_waits_are_known(stride: int) -> None:
    """As of a job that nobody prepared: few of its inner ops are sampled."""
    job = two_by_two(30.0, 5.0)
    for meeting in job.meetings[:-1]:
        meeting.work = lambda rank, step: 30.0 + 40.0 * (rank == 3)
    statistics = job.run(100).statistics(steps=False)
    found, _ = search(sampled(statistics, stride, "tp"), job.frame())
    assert [one.ranks for one in found] == [(3,)]
    assert found[0].late_ns / 1e6 == pytest.approx(40, rel=0.1)


# Controls


def test_warm_up_and_compilation_raise_nothing() -> None:
    job = data_parallel().run(1, late={3: 60_000.0}).run(10, late={3: 2000.0}).run(60)
    assert not late(job)


def test_checkpoints_and_evaluation_by_rank_0_raise_nothing() -> None:
    job = data_parallel()
    for _ in range(12):
        job.run(1, late={0: 3000.0}).run(9)
    assert not late(job)
    assert not late(job, steps=False)


def test_lengths_that_even_out_raise_nothing() -> None:
    for seed in range(5):
        dice = random.Random(seed)
        job = SteppingJob(4, seed=seed)
        job.meetings = [Meeting((job.everybody,), lambda rank, step: dice.expovariate(1 / 200))]  # noqa: B023
        assert not late(job.run(120))


@pytest.mark.parametrize("lasts", [1, 5, 15])
def test_imbalance_that_moves_raises_nothing(lasts: int) -> None:
    for seed in range(5):
        dice = random.Random(seed)
        hot = [dice.randrange(4) for _ in range(40)]
        job = SteppingJob(4, seed=seed)
        job.meetings = [
            Meeting(
                (job.everybody,),
                lambda rank, step: 100 + 100 * (rank == hot[step // lasts % len(hot)]),  # noqa: B023
            )
        ]
        assert not late(job.run(150))


@pytest.mark.parametrize("after", [0, 20])
def test_one_disturbance_of_some_seconds_raises_nothing(after: int) -> None:
    """4 s in which one of many ranks is late in each step: another program starts beside it."""
    job = data_parallel(16, work=50.0).run(100).run(40, late={7: 50.0})
    assert not late(job.run(after))


def test_a_pipeline_of_uneven_stages_raises_nothing() -> None:
    """The last of one step is the first stage by design; stage 1 works for longest."""
    job = SteppingJob(4)
    job.meetings = [
        Meeting((job.everybody,), lambda rank, step: (200.0, 290.0, 250.0, 160.0)[rank])
    ]
    job.run(150)
    assert late(job)
    assert not late(job, p2p=[(0, 1, 2, 3)])


def replicated_pipeline(late_rank: int | None) -> SteppingJob:
    """Two pipelines (0, 1) and (2, 3); each stage reduces with its like at the end of a step.

    What a receive waits for is no work of its own: the first stage waits for the second.
    """
    job = SteppingJob(4)

    def work(rank: int, step: int) -> float:
        return 150.0 + 50 * (rank % 2) + 40.0 * (rank == late_rank)

    job.meetings = [
        # Stands for the messages: both of a pipeline leave it together.
        Meeting(((0, 1), (2, 3)), work, kind="send", name="pp"),
        Meeting(((0, 2), (1, 3)), lambda rank, step: 10.0, name="dp"),
    ]
    return job


def test_ranks_with_twice_as_many_ops_have_other_work() -> None:
    """Two pairs that meet once in a step: one has made 20 ops by then, the other one 40."""
    job = SteppingJob(4)
    pairs, across = ((0, 1), (2, 3)), ((0, 2), (1, 3))
    job.meetings = [
        *(Meeting(pairs, lambda *_: 1.0, name="tp") for _ in range(20)),
        *(Meeting(pairs[1:], lambda *_: 1.0, name="tp") for _ in range(20)),
        Meeting(across, lambda *_: 1.0, name="dp"),
    ]
    job.run(100)
    for steps in (True, False):
        assert not late(job, steps=steps)


@pytest.mark.parametrize(("late_rank", "steps", "found"), [
    (3, True, {(3,): pytest.approx(40, rel=0.1)}),
    (None, True, {}),  # stages differ by design
    (3, False, {}),  # messages may explain it
])  # fmt: skip
def test_a_slow_stage_is_told_from_the_stages_that_wait_for_it(
    late_rank: int | None, *, steps: bool, found: dict[tuple[int, ...], float]
) -> None:
    job = replicated_pipeline(late_rank).run(150)
    assert late(job, steps=steps, p2p=[(0, 1), (2, 3)]) == found


def test_hosts_of_devices_may_issue_late_ahead_of_them() -> None:
    """The device has 400 ms of work before this op: its host's 30 ms cost nothing."""
    job = data_parallel()
    job.meetings[0].transfer = lambda _: 400.0
    job.meetings[0].waits = False
    job.run(150, late={1: 60.0})
    assert not late(job, device=True)
    job = data_parallel().run(150, late={1: 60.0})
    assert late(job, device=True) == {(1,): pytest.approx(60, rel=0.1)}


@pytest.mark.parametrize("blocking", [False, True])
def test_a_slow_device_shows_only_where_its_host_waits_for_it(blocking: bool) -> None:
    """Rank 1's device needs 60 ms longer. Ahead of it all hosts issue together, and the op takes as
    long for all; a host that waits for its device before the op comes late to it."""
    job = data_parallel()
    job.meetings[0].waits = blocking
    job.meetings[0].transfer = lambda _: 0.5 if blocking else 260.0
    job.run(150, late={1: 60.0} if blocking else None)
    found, links = search(job.statistics(), job.frame(device=True))
    assert [one.ranks for one in found] == ([(1,)] if blocking else [])
    assert not links


def test_broadcasts_make_nobody_late() -> None:
    job = data_parallel()
    job.meetings[0].kind = "broadcast"
    assert not late(job.run(120, late={1: 60.0}))


# Links


def links_of(job: SteppingJob) -> list[SlowLink]:
    return search(job.statistics(), job.frame())[1]


def linked(slow: set[tuple[int, ...]]) -> SteppingJob:
    job = two_by_two(20.0, 20.0)
    job.meetings = [job.meetings[0], job.meetings[-1]]
    for meeting in job.meetings:
        meeting.transfer = lambda group: 40.0 if group in slow else 8.0
    return job


def test_a_rank_with_a_slow_link_is_told_from_a_slow_rank() -> None:
    job = linked({(0, 1), (1, 3)}).run(200)
    assert not late(job)
    links = links_of(job)
    assert links[0].ranks == (1,)
    assert links[0].common
    assert links[0].sure
    assert links[0].transfer_ns / 1e6 == pytest.approx(40, rel=0.05)
    assert links[0].usual_ns / 1e6 == pytest.approx(8, rel=0.05)


def test_the_link_between_two_ranks_blames_neither() -> None:
    links = links_of(linked({(0, 1)}).run(200))
    assert links[0].ranks == (0, 1)
    assert not links[0].common


def test_equal_links_are_no_finding() -> None:
    assert not links_of(linked(set()).run(200))


def alike_groups(
    transfer: Mapping[int, float], *, name: str = "tp", late: float = 0.0
) -> SteppingJob:
    """Four tensor-parallel pairs. `transfer` has the ms of some; the others take 8 ms."""
    pairs = [(2 * n, 2 * n + 1) for n in range(4)]
    job = SteppingJob(8)
    for n, pair in enumerate(pairs):
        job.meetings.append(
            Meeting(
                (pair,),
                lambda rank, _: 20.0 + late * (rank == 1),
                lambda _, n=n: transfer.get(n, 8.0),  # type: ignore[misc]
                name=name.format(n),
            )
        )
    job.meetings.append(Meeting((job.everybody,), lambda rank, step: 5.0, site=OTHER_SITE))
    return job


@pytest.mark.parametrize("name", ["tp", "tp:{}", "tp_{}", "undefined"])
def test_groups_are_compared_with_similar_ones_whatever_they_are_called(name: str) -> None:
    [link] = links_of(alike_groups({2: 24.0}, name=name).run(200))
    assert (link.ranks, link.alike) == ((4, 5), 4)
    assert (link.transfer_ns / 1e6, link.usual_ns / 1e6) == pytest.approx((24, 8), rel=0.05)


@pytest.mark.parametrize("job", [
    alike_groups({2: 11.0}),  # slower, but not by as much as a bad link
    alike_groups({}, late=16.0),  # a member of the first pair comes late
])  # fmt: skip
def test_a_link_is_accused_only_where_data_moves_slowly(job: SteppingJob) -> None:
    assert not links_of(job.run(200))


def in_flight(ops: Mapping[tuple[int, ...], int], transfer: Mapping[int, float]) -> SteppingJob:
    """Pairs with this many asynchronous ops of this many ms in each step of 120 ms."""
    job = SteppingJob(4)
    for n in range(max(ops.values())):
        pairs = tuple(pair for pair in ops if n < ops[pair])
        moves = lambda pair: transfer[pair[0]]  # noqa: E731
        job.meetings.append(Meeting(pairs, lambda *_: 0.1, moves, waits=False, name="tp"))
    across = ((0, 2), (1, 3))
    job.meetings.append(Meeting(across, lambda *_: 120.0, name="dp", site=OTHER_SITE))
    return job


def test_a_link_with_more_ops_in_flight_is_busier_not_slower() -> None:
    assert not links_of(in_flight({(0, 1): 3, (2, 3): 6}, {0: 8.0, 2: 18.0}).run(200))


def test_ops_in_flight_at_once_cost_no_more_than_all_of_the_time() -> None:
    [link] = links_of(in_flight({(0, 1): 5, (2, 3): 5}, {0: 8.0, 2: 60.0}).run(200))
    assert link.ranks == (2, 3)
    assert link.share == pytest.approx(1 - 5 * 8 / 121, rel=0.1)


def test_groups_on_more_hosts_are_other_groups() -> None:
    job = alike_groups({2: 24.0}).run(200)
    hosts = {rank: f"node{rank == 5}" for rank in range(8)}
    assert not search(job.statistics(), job.frame(hosts=hosts))[1]


def test_axes_that_share_a_line_are_not_compared() -> None:
    job = linked({(0, 1), (2, 3)})
    for meeting in job.meetings:
        meeting.name, meeting.site = "undefined", SITE
    assert not links_of(job.run(200))


def test_ops_on_devices_tell_nothing_of_links() -> None:
    job = alike_groups({2: 24.0}).run(200)
    assert not search(job.statistics(), job.frame(device=True))[1]


def test_the_chance_of_dice() -> None:
    assert chance(10, 10, 0.5) == pytest.approx(1 / 1024)
    assert chance(4, 0, 0.25) == pytest.approx(1)
    assert chance(20, 15, 0.5) == pytest.approx(0.0207, rel=0.01)

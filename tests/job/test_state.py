"""Updates and snapshots in, frames out: gaps, instances, clocks, states, choice of a job."""

from __future__ import annotations

import gc
from typing import Any

import pytest
from msgspec import structs

from frtop_probe import wire
from frtop_probe.consistency.checksums import packed
from frtop_probe.ring.layout import MAX_DESTROYED
from frtop_tui.job.job_activity import activity_in
from frtop_tui.job.model import Problem, RankState
from frtop_tui.job.record import RankRecord
from frtop_tui.job.state import MOST_DOUBTED, JobState

SECOND = 1_000_000_000
NOW = 1000 * SECOND
JOB = wire.Job("node0", 29500, 2, "run-1", 0, "n1", "train.py")
GROUP = wire.Group(1, "0", "default_pg", "gloo", "0-1")


def rank(key: int = 1, number: int = 0, job: wire.Job = JOB, **fields: Any) -> wire.RankUpdate:
    identity = wire.Identity(
        100 + key, 1, number, number, job, started_ns=NOW - 60 * SECOND, main_ident=7
    )
    known = {"status": present(NOW), "groups": (GROUP,), "pending": ()}
    return wire.RankUpdate(key=key, identity=identity, **{**known, **fields})


def present(heartbeat_ns: int, **fields: Any) -> wire.RankStatus:
    return wire.RankStatus(**{"state": 1, "heartbeat_ns": heartbeat_ns, "ops": 0, **fields})


def update(
    number: int, *ranks: wire.RankUpdate, at: int = NOW, full: bool = False, **fields: Any
) -> wire.Update:
    return wire.Update(
        **{"host": "h", "instance": "i", "number": number, "monotonic_ns": at, "wall_ns": 0,
           "ranks": ranks, "full": full, **fields}
    )  # fmt: skip


def reported(*ranks: wire.RankUpdate) -> JobState:
    state = JobState()
    assert state.apply("h", update(5, *ranks, full=True), NOW)
    return state


def test_members_in_short_are_those_that_other_sources_write_out() -> None:
    written = wire.Group(1, "1", "dp", "nccl", ",".join(map(str, range(0, 800, 8))))
    short = structs.replace(written, ranks="0-792/8")
    broken = structs.replace(written, id=2, name="2", ranks="0-8/0")
    state = reported(rank(1, 0, groups=(short, broken)), rank(2, 8, groups=(written,)))
    frame = state.frame(NOW, 0)
    assert frame.ranks[0].groups[1] == frame.ranks[8].groups[1] == written
    assert [(len(one.members), one.number) for one in frame.groups] == [(100, 0), (0, 0)]


def test_few_doubted_clocks_are_asked_at_a_time() -> None:
    state = JobState()
    for number in range(3 * MOST_DOUBTED):
        state.apply(f"h{number}", update(1, at=NOW, full=True, instance=str(number)), NOW)
        state.measure_clock(f"h{number}", NOW, NOW, wire.TimeResponse(1, NOW, 0))
        state.apply(f"h{number}", update(2, at=NOW, instance=str(number)), NOW + 2 * SECOND)
    asked = state.hosts_with_doubted_clocks()
    assert len(asked) == MOST_DOUBTED
    for host in asked:
        state.measure_clock(host, NOW, NOW, wire.TimeResponse(2, NOW, 0))
    assert not set(asked) & set(state.hosts_with_doubted_clocks())


# which updates are applied


def test_a_delta_before_a_full_state_is_dropped() -> None:
    state = JobState()
    assert not state.apply("h", update(1, rank()), NOW)
    assert not state.frame(NOW, 0).ranks


def test_deltas_follow_a_full_state() -> None:
    state = reported(rank())
    delta = wire.RankUpdate(key=1, status=present(NOW, step=4))
    assert state.apply("h", update(6, delta), NOW)
    view = state.frame(NOW, 0).ranks[0]
    assert view.status is not None
    assert view.status.step == 4
    assert view.groups == {1: GROUP}


def test_what_is_older_than_what_is_known_changes_nothing_and_is_no_gap() -> None:
    state = reported(rank())
    assert state.apply("h", update(5, wire.RankUpdate(key=1, status=present(1))), NOW)
    view = state.frame(NOW, 0).ranks[0]
    assert view.status is not None
    assert view.status.heartbeat_ns == NOW
    assert state.apply("h", update(6, wire.RankUpdate(key=1, status=present(NOW + 1))), NOW)
    assert state.apply("h", update(5, rank(), full=True), NOW)
    view = state.frame(NOW, 0).ranks[0]
    assert view.status is not None
    assert view.status.heartbeat_ns == NOW + 1
    assert state.apply("h", update(7), NOW)
    assert state.frame(NOW, 0).coverage.lost_updates == 0


def test_a_gap_is_counted_until_a_full_state_repairs_it() -> None:
    state = reported(rank(), rank(2, 1))
    assert not state.apply("h", update(9), NOW)
    assert not state.apply("h", update(10), NOW)
    frame = state.frame(NOW, 0)
    assert frame.hosts[0].lost_updates == 3
    assert frame.coverage.lost_updates == 3
    assert not frame.coverage.complete
    assert state.apply("h", update(10, rank(), rank(2, 1), full=True), NOW)
    assert state.apply("h", update(11), NOW)
    frame = state.frame(NOW, 0)
    assert frame.hosts[0].lost_updates == 3
    assert frame.coverage.complete


def test_another_instance_of_the_agent_begins_anew_perhaps_after_a_boot() -> None:
    state = reported(rank(), rank(2, 1))
    assert not state.apply("h", update(6, instance="other"), NOW)
    full = update(1, rank(), at=5 * SECOND, full=True, instance="other")
    assert state.apply("h", full, NOW)
    assert state.apply("h", update(2, at=5 * SECOND, instance="other"), NOW)
    ranks = state.frame(NOW, 0).ranks
    assert {number: view.clock_ns for number, view in ranks.items()} == {0: NOW - 5 * SECOND}


def test_removed_ranks_are_freed_even_when_no_job_is_shown() -> None:
    others, states = records(), {how: JobState() for how in ("anew", "forgotten", "no host")}
    for turn in range(1, 9, 2):
        for how, state in states.items():
            state.apply("h", update(turn, rank(), rank(2, 1), full=True), NOW)
            if how == "forgotten":
                state.apply("h", update(turn + 1, forgotten=(1, 2)), NOW)
            elif how == "no host":
                state.forget_host("h")
            assert not state.frame(NOW, 0, "else").ranks
    assert records() - others == 2  # those that were told of anew


def records() -> int:
    """Number of records in this process."""
    gc.collect()
    return sum(type(one) is RankRecord for one in gc.get_objects())


def test_of_many_jobs_the_shown_one_is_compared() -> None:
    state = JobState()
    jobs = [wire.Job("node0", port, 2, "", 0, "n") for port in range(29500, 29530)]
    ranks = [
        rank(2 * place + number, number, one, groups=(structs.replace(GROUP, exact=True),))
        for place, one in enumerate(jobs)
        for number in (0, 1)
    ]
    assert state.apply("h", update(1, *ranks, full=True), NOW)
    for number, shown in enumerate((jobs[3], jobs[23]), 1):
        call = f"node0:{shown.master_port}"
        state.frame(NOW, 0, call)
        ranks = [
            wire.RankUpdate(one.key, blocks=(wire.BlockSums(1, 8 * number + 1, 8, packed([sums])),))
            for sums, one in enumerate(ranks)
        ]
        assert state.apply("h", update(number + 1, *ranks), NOW)
        assert len(state.frame(NOW, 0, call).divergence_hints) == 1


def test_activities_are_computed_once_a_second() -> None:
    other = wire.Job("node0", 29501, 2, "", 0, "n")
    quick = SECOND // 10
    state = reported(rank(), rank(2, 0, other))
    before = state.frame(NOW, 0, "run-1").activities
    stepped = wire.RankUpdate(2, status=present(NOW, step_ns=NOW))
    assert state.apply("h", update(6, stepped), NOW + quick)
    assert state.frame(NOW + quick, 0, "run-1").activities is before
    assert [one.quiet_s for one in before] == [None, None]
    later = state.frame(NOW + SECOND, 0, "run-1")
    pulse = activity_in(later, other)
    assert pulse is not None
    assert pulse.quiet_s == 1
    shown = state.frame(NOW + SECOND + quick, 0, "node0:29501")
    assert activity_in(shown, JOB) != activity_in(later, JOB)
    assert state.apply("h", update(7, rank(3, 0, other)), NOW + SECOND + quick)
    assert state.frame(NOW + SECOND + quick, 0, "node0:29501").activities is not shown.activities


def test_a_rank_without_an_identity_is_ignored() -> None:
    state = reported(rank())
    state.apply("h", update(6, wire.RankUpdate(key=9, status=present(NOW))), NOW)
    assert set(state.frame(NOW, 0).ranks) == {0}


def test_empty_pending_is_a_change_and_none_is_not() -> None:
    op = wire.Op(1, 1, 1, None, None, NOW)
    state = reported(rank(pending=(op,)))
    state.apply("h", update(6, wire.RankUpdate(key=1)), NOW)
    assert state.frame(NOW, 0).ranks[0].pending == (op,)
    state.apply("h", update(7, wire.RankUpdate(key=1, pending=())), NOW)
    assert state.frame(NOW, 0).ranks[0].pending == ()


def test_progress_of_several_groups_is_merged() -> None:
    state = reported(
        rank(group_progress=(wire.GroupProgress(1, 5, 0, NOW), wire.GroupProgress(2, 9, 0, NOW)))
    )
    state.apply(
        "h",
        update(6, wire.RankUpdate(key=1, group_progress=(wire.GroupProgress(1, 6, 0, NOW),))),
        NOW,
    )
    progress = state.frame(NOW, 0).ranks[0].group_progress
    assert (progress[1].number, progress[2].number) == (6, 9)


def test_counts_of_messages_are_of_now_or_unknown() -> None:
    counts = (wire.Messages(1, 5, True, (wire.MessageCount(True, 1, 0, 5),)),)
    state = reported(rank(group_progress=(wire.GroupProgress(1, 0, 5, NOW),), messages=counts))
    assert state.frame(NOW, 0).ranks[0].messages == counts
    state.apply("h", update(6, wire.RankUpdate(key=1)), NOW)
    assert state.frame(NOW, 0).ranks[0].messages == counts
    moved = wire.GroupProgress(1, 0, 6, NOW)
    state.apply("h", update(7, wire.RankUpdate(key=1, group_progress=(moved,))), NOW)
    assert state.frame(NOW, 0).ranks[0].messages == ()
    state.apply("h", update(8, wire.RankUpdate(key=1, messages=counts)), NOW)
    assert state.frame(NOW, 0).ranks[0].messages == ()


# clocks


@pytest.mark.parametrize("skew", [0, -900 * SECOND, 10**6 * SECOND])
def test_ages_are_right_whatever_the_hosts_clock(skew: int) -> None:
    state = JobState()
    shifted = rank(status=present(NOW + skew))
    state.apply("h", update(1, shifted, at=NOW + skew, full=True), NOW)
    view = state.frame(NOW, 0).ranks[0]
    assert view.clock_ns == -skew
    assert view.age_s(NOW + skew - 3 * SECOND, NOW) == pytest.approx(3)


def test_the_least_delayed_update_sets_the_clock() -> None:
    state = JobState()
    state.apply("h", update(1, rank(), full=True), NOW + SECOND)
    state.apply("h", update(2, wire.RankUpdate(key=1), at=NOW + SECOND), NOW + SECOND + 5_000_000)
    state.apply("h", update(3, at=NOW + 2 * SECOND), NOW + 4 * SECOND)
    assert state.frame(NOW + 4 * SECOND, 0).ranks[0].clock_ns == 5_000_000


def test_a_stopped_clock_is_noticed_within_seconds() -> None:
    state = JobState()
    for tick in range(40):
        paused = 60 * SECOND if tick >= 5 else 0  # the host's clock has missed a minute
        now = NOW + tick * SECOND // 2 + paused
        full = tick == 0
        ranks = (rank(),) if full else ()
        state.apply("h", update(tick, *ranks, at=now - paused, full=full), now)
    assert state.frame(now, 0).ranks[0].clock_ns == 60 * SECOND


# states


def stop(process: str) -> dict[str, Any]:
    return {"process": wire.Process(101, process)}


@pytest.mark.parametrize(("fields", "expected"), [
    ({}, "moving"),
    ({"groups": ()}, "starting"),
    ({"status": present(NOW - 1 * SECOND)}, "moving"),
    ({"status": present(NOW - 2 * SECOND)}, "silent"),
    ({"status": present(NOW - 2 * SECOND, state=2)}, "moving"),
    ({"status": present(NOW - 2 * SECOND, state=3)}, "moving"),
    ({"status": present(0)}, "moving"),
    (stop("T"), "stopped"),
    (stop("t"), "stopped"),
    (stop("D"), "moving"),
    ({"exit_info": wire.ExitInfo(NOW, 0)}, "done"),
    ({"exit_info": wire.ExitInfo(NOW, 0, clean=True)}, "done"),
    ({"exit_info": wire.ExitInfo(NOW, clean=True)}, "done"),
    ({"exit_info": wire.ExitInfo(NOW, 1)}, "dead"),
    ({"exit_info": wire.ExitInfo(NOW, 3, clean=True)}, "dead"),
    ({"exit_info": wire.ExitInfo(NOW, None, 9)}, "dead"),
    ({"exit_info": wire.ExitInfo(NOW)}, "dead"),
    ({"exception": wire.UncaughtException("ValueError", "", "MainThread", True, NOW)}, "dead"),
    ({"exception": wire.UncaughtException("ValueError", "", "loader", False, NOW)}, "moving"),
])  # fmt: skip
def test_states(fields: dict[str, Any], expected: RankState) -> None:
    assert reported(rank(**fields)).frame(NOW, 0).ranks[0].state == expected


def test_a_silent_host_makes_its_living_ranks_unreachable_until_it_speaks() -> None:
    state = reported(rank(), rank(2, 1, exit_info=wire.ExitInfo(NOW, 0)))
    frame = state.frame(NOW + 4 * SECOND, 0)
    assert [view.state for view in frame.ranks.values()] == ["unreachable", "done"]
    assert frame.hosts[0].state == "silent"
    assert frame.coverage.unreachable == (0,)
    assert frame.ranks[0].state_since_ns == NOW
    assert (frame.health, frame.since_ns) == (
        "unreachable",
        NOW,
    )  # who has ended makes none healthy
    later = NOW + 10 * SECOND
    delta = wire.RankUpdate(key=1, status=present(later))
    state.apply("h", update(6, delta, at=later), later)
    frame = state.frame(later, 0)
    assert (frame.ranks[0].state, frame.hosts[0].state) == ("moving", "reporting")


def test_a_late_update_is_no_silence_of_a_heartbeat() -> None:
    state = reported(rank())
    assert state.frame(NOW + 29 * SECOND // 10, 0).ranks[0].state == "moving"


def test_a_state_keeps_its_start_time() -> None:
    state = reported(rank())
    first = state.frame(NOW, 0).ranks[0].state_since_ns
    state.apply("h", update(6, wire.RankUpdate(key=1, status=present(NOW + SECOND)),
                            at=NOW + SECOND), NOW + SECOND)  # fmt: skip
    assert state.frame(NOW + SECOND, 0).ranks[0].state_since_ns == first


def test_views_that_have_not_changed_are_reused() -> None:
    state = reported(rank(), rank(2, 1))
    before = state.frame(NOW, 0).ranks
    state.apply("h", update(6, wire.RankUpdate(key=2, status=present(NOW, ops=1))), NOW)
    after = state.frame(NOW, 0).ranks
    assert after[0] is before[0]
    assert after[1] is not before[1]


# snapshots


def snapshot_response(
    at: int, *, stacks: str = "", pid: int = 101, error: str = ""
) -> wire.SnapshotResponse:
    dumps: tuple[wire.StackDump, ...] = ()
    if stacks:
        frame = wire.TraceFrame(stacks, "train.py", 1)
        dumps = (wire.StackDump(pid, (wire.ThreadStack(7, 7, "Main", False, False, (frame,)),)),)
    if error:
        dumps = (wire.StackDump(pid, (), error),)
    processes = (wire.Process(101, "S"),)
    return wire.SnapshotResponse(1, "h", (wire.Snapshot(1, at, None, processes, dumps),))


def names(state: JobState) -> list[str]:
    stack = state.frame(NOW, 0).ranks[0].main_stack
    return [frame.function for frame in stack.frames] if stack is not None else []


def test_a_snapshot_without_stacks_keeps_the_last_ones() -> None:
    state = reported(rank())
    state.apply_snapshots("h", snapshot_response(NOW, stacks="read"))
    state.apply_snapshots("h", snapshot_response(NOW + SECOND))
    view = state.frame(NOW, 0).ranks[0]
    assert names(state) == ["read"]
    assert view.snapshot is not None
    assert view.snapshot.at_ns == NOW + SECOND
    assert view.stacks_taken_ns == NOW
    state.apply_snapshots("h", snapshot_response(NOW + 2 * SECOND, error="deadline"))
    assert names(state) == ["read"]


def test_stacks_of_a_child_that_is_gone_are_dropped() -> None:
    state = reported(rank())
    state.apply_snapshots("h", snapshot_response(NOW, stacks="worker", pid=555))
    assert names(state) == []  # it is not the rank's own
    state.apply_snapshots("h", snapshot_response(NOW + SECOND))
    view = state.frame(NOW, 0).ranks[0]
    assert view.snapshot is not None
    assert not view.snapshot.dumps


@pytest.mark.parametrize(("times", "prior"), [
    ([0], None), ([0, 1], None), ([0, 2], 0), ([0, 1, 2], 0), ([0, 1, 2, 3], 1),
    ([0, 1, 2, 3, 10], 3),
])  # fmt: skip
def test_the_prior_snapshot_is_at_least_two_seconds_older(
    times: list[int], prior: int | None
) -> None:
    state = reported(rank())
    for at in times:
        state.apply_snapshots("h", snapshot_response(NOW + at * SECOND, stacks="read"))
    found = state.frame(NOW, 0).ranks[0].prior_snapshot
    assert (None if found is None else (found.at_ns - NOW) // SECOND) == prior


def test_snapshots_in_quick_succession_do_not_push_out_old_ones() -> None:
    state = reported(rank())
    for tenth in range(60):
        state.apply_snapshots("h", snapshot_response(NOW + tenth * SECOND // 10, stacks="read"))
    found = state.frame(NOW, 0).ranks[0].prior_snapshot
    assert found is not None
    assert 2 <= (NOW + 59 * SECOND // 10 - found.at_ns) / SECOND < 3


def test_the_process_of_a_snapshot_does_not_outlive_it() -> None:
    state = reported(rank(process=wire.Process(101, "S")))
    stopped = wire.Snapshot(1, NOW, None, (wire.Process(101, "T"),))
    state.apply_snapshots("h", wire.SnapshotResponse(1, "h", (stopped,)))
    assert state.frame(NOW, 0).ranks[0].state == "stopped"
    later = NOW + 2 * SECOND
    state.apply("h", update(6, wire.RankUpdate(key=1, status=present(later)), at=later), later)
    view = state.frame(later, 0).ranks[0]
    assert (view.state, view.process) == ("moving", wire.Process(101, "S"))


def test_the_process_of_a_snapshot_does_not_outlive_it_in_the_same_state() -> None:
    sleeping = wire.Process(101, "S", "python")
    running = wire.Snapshot(1, NOW, None, (wire.Process(101, "R", "python"),))
    state = reported(rank(process=sleeping))
    state.apply_snapshots("h", wire.SnapshotResponse(1, "h", (running,)))
    assert state.frame(NOW, 0).ranks[0].process == running.processes[0]
    state.apply("h", update(6, at=NOW + 1_200_000_000), NOW + 1_200_000_000)
    assert state.frame(NOW + 1_200_000_000, 0).ranks[0].process == sleeping


def test_snapshots_survive_a_full_state_of_the_same_agent() -> None:
    state = reported(rank())
    state.apply_snapshots("h", snapshot_response(NOW, stacks="read"))
    state.apply("h", update(9, rank(), full=True), NOW)
    assert names(state) == ["read"]


def test_a_snapshot_of_an_unknown_rank_is_dropped() -> None:
    state = reported(rank(3, 0))
    state.apply_snapshots("h", snapshot_response(NOW, stacks="read"))
    assert names(state) == []


# jobs


def of(job: wire.Job, started: int, **fields: Any) -> wire.RankUpdate:
    made = rank(key=started % 1000, number=0, job=job, **fields)
    identity = wire.Identity(200 + started, 1, 0, 0, job, started_ns=started * SECOND)
    return wire.RankUpdate(
        key=started, identity=identity, status=made.status, groups=made.groups,
        pending=(), exit_info=made.exit_info,
    )  # fmt: skip


OLD = wire.Job("node0", 29500, 1, "old", 0, "a", "old.py")
NEW = wire.Job("node0", 29501, 1, "new", 0, "b", "new.py")
ENDED = wire.ExitInfo(NOW, 0)


@pytest.mark.parametrize("name", ["old", "old.py", "node0:29500", "a"])
def test_a_job_is_chosen_by_any_of_its_names(name: str) -> None:
    assert reported(of(OLD, 10), of(NEW, 20)).frame(NOW, 0, name).job == OLD


def test_an_unknown_name_is_a_problem_not_another_job() -> None:
    frame = reported(of(OLD, 10, exit_info=ENDED), of(NEW, 20)).frame(NOW, 0, "else")
    assert frame.job is None
    assert frame.problem is not None
    assert frame.problem.text == (
        "no job is called 'else': there is new.py (node0:29501), old.py (node0:29500, ended)"
    )
    assert frame.problem.next == "--job new.py"
    assert [job.run_id for job in frame.other_jobs] == ["new", "old"]


def test_a_long_list_of_jobs_is_cut() -> None:
    jobs = [wire.Job("n", 1000 + n, 1, str(n), 0, "a", "a.py") for n in range(9)]
    frame = reported(*(of(job, n + 1) for n, job in enumerate(jobs))).frame(NOW, 0, "else")
    assert "and 3 more; --job" in str(frame.problem)


def test_living_jobs_are_distinguished_from_ended_ones() -> None:
    third = wire.Job("node0", 29502, 1, "third", 0, "c", "third.py")
    state = reported(of(OLD, 10), of(NEW, 20), of(third, 15, exit_info=ENDED))
    frame = state.frame(NOW, 0)
    assert frame.job == NEW
    assert [job.run_id for job in frame.other_jobs] == ["old", "third"]
    assert [job.run_id for job in frame.running_jobs] == ["old"]


def test_the_name_does_not_distinguish_jobs() -> None:
    other = wire.Job("node0", 29500, 1, "old", 0, "a", "other.py")
    assert not reported(of(OLD, 10), of(other, 20)).frame(NOW, 0).other_jobs


def test_of_two_processes_for_a_rank_the_living_one_is_shown() -> None:
    state = reported(of(OLD, 10), of(OLD, 20, exit_info=ENDED))
    assert state.frame(NOW, 0).ranks[0].identity.pid == 210


# frames and coverage


def test_nothing_reported_is_connecting() -> None:
    state = JobState()
    state.set_host("h", "connecting")
    assert state.frame(NOW, 0).health == "connecting"


def test_an_agent_without_a_job_is_empty() -> None:
    assert reported().frame(NOW, 0).health == "empty"


def test_a_failed_host_has_its_problem() -> None:
    state = JobState()
    problem = Problem("no route to h", "is it up?")
    state.set_host("h", "failed", problem)
    frame = state.frame(NOW, 0)
    assert (frame.hosts[0].state, frame.problem) == ("failed", problem)


def test_a_refusal_stays_while_updates_come_and_a_failure_does_not() -> None:
    state = reported(rank())
    problem = Problem("read-only: snapshots are refused")
    state.set_host("h", "reporting", problem)
    state.apply("h", update(6), NOW)
    assert state.frame(NOW, 0).hosts[0].problem == problem
    state.set_host("h", "failed", Problem("gone"))
    state.apply("h", update(7), NOW)
    assert (state.frame(NOW, 0).hosts[0].state, state.frame(NOW, 0).problem) == ("reporting", None)


def test_ranks_come_in_order_whatever_their_host() -> None:
    state = reported(rank(2, 1))
    state.apply("g", update(1, rank(), full=True, host="g"), NOW)
    assert list(state.frame(NOW, 0).ranks) == [0, 1]


def test_ranks_of_the_world_that_never_appeared_are_unreachable() -> None:
    frame = reported(rank()).frame(NOW, 0)
    assert (frame.coverage.expected, frame.coverage.reporting) == (2, 1)
    assert frame.coverage.unreachable == (1,)
    assert frame.coverage.notes[0].text == (
        "rank 1 never reported: not started yet, another user's, on a host that is not connected,"
        " or not searched for (FRTOP_UNPREPARED=0)"
    )
    assert not frame.coverage.complete


@pytest.mark.parametrize(("cells", "note"), [
    ({"state": 2}, "recorder switched itself off on rank 0"),
    ({"hook_errors": 1}, "errors in the hook on rank 0"),
    ({"pending_lost": 1204}, "1,204 pending ops lost on rank 0"),
    ({"side_lost": 3}, "3 signatures or call sites lost on rank 0"),
])  # fmt: skip
def test_what_a_recorder_lost_is_noted(cells: dict[str, int], note: str) -> None:
    frame = reported(rank(status=present(NOW, **cells)), rank(2, 1)).frame(NOW, 0)
    assert any(note in line.text for line in frame.coverage.notes)


def test_an_absurd_world_size_is_not_enumerated() -> None:
    job = wire.Job("node0", 29500, 10**12, "run", 0, "n", "train.py")
    frame = reported(rank(job=job)).frame(NOW, 0)
    assert (frame.coverage.expected, frame.job and frame.job.world_size) == (1, 0)


def test_a_process_without_a_rank_is_counted_not_shown() -> None:
    frame = reported(rank(), rank(2, -1)).frame(NOW, 0)
    assert set(frame.ranks) == {0}
    note = "1 process has not said which rank it is"
    assert any(note in one.text for one in frame.coverage.notes)
    alone = reported(rank(2, -1)).frame(NOW, 0)
    assert alone.job is None
    assert [one.text for one in alone.coverage.notes] == [note]


OTHER = wire.Job("node9", 1, 2, "earlier")


@pytest.mark.parametrize(("job", "ending", "counted"), [
    (JOB, None, True),
    (JOB, ENDED, True),
    (OTHER, None, True),  # it may be one of ours that has not read its environment yet
    (OTHER, ENDED, False),
])  # fmt: skip
def test_the_dead_of_earlier_jobs_need_no_rank(
    job: wire.Job, ending: wire.ExitInfo | None, counted: bool
) -> None:
    frame = reported(rank(), rank(2, -1, job=job, exit_info=ending)).frame(NOW, 0)
    assert any("not said which rank" in n.text for n in frame.coverage.notes) is counted


def test_the_job_is_as_old_as_its_first_rank() -> None:
    assert reported(rank()).frame(NOW, 0).up_s == pytest.approx(60)


@pytest.mark.parametrize(("other", "up_s"), [(None, 90), (wire.ExitInfo(NOW - 5 * SECOND, 0), 55)])
def test_an_ended_job_grows_no_older(other: wire.ExitInfo | None, up_s: float) -> None:
    state = reported(
        rank(exit_info=wire.ExitInfo(NOW - 9 * SECOND, 0)), rank(2, 1, exit_info=other)
    )
    assert state.frame(NOW + 30 * SECOND, 0).up_s == pytest.approx(up_s)


def test_of_groups_that_a_rank_has_destroyed_the_last_ones_are_kept() -> None:
    unnamed = wire.GroupProgress(1000, 7, 0, NOW)
    state = reported(rank(group_progress=(wire.GroupProgress(1, 3, 0, NOW), unnamed)))
    for number in range(2, 300):
        made = structs.replace(GROUP, id=number, name=str(number))
        last = structs.replace(GROUP, id=number - 1, name=str(number - 1), gone=True)
        delta = wire.RankUpdate(key=1, groups=(last, made))
        assert state.apply("h", update(4 + number, delta), NOW)
    frame = state.frame(NOW, 0)
    assert [one.key.name for one in frame.groups] == ["299"]
    assert len(frame.ranks[0].groups) == MAX_DESTROYED + 1
    assert len(state._groups) == 1
    assert frame.ranks[0].group_progress.keys() == {1000}


def test_a_group_that_a_rank_destroyed_while_updates_were_lost_is_forgotten() -> None:
    made = structs.replace(GROUP, id=2, name="1")
    sums = wire.BlockSums(2, 1, 1, packed([7]), b"")
    state = reported(rank(groups=(GROUP, made), blocks=(sums,)))
    (job,) = state._checksums._jobs.values()
    assert len(job._groups) == 1
    again = rank(groups=(GROUP, structs.replace(made, gone=True)))
    assert state.apply("h", update(9, again, full=True), NOW)
    assert not job._groups
    assert state._groups.keys() == {GROUP}

"""Which ranks are one job, and which job is shown."""

from __future__ import annotations

import pytest
from msgspec import structs

from frtop_probe import wire
from frtop_tui.job.clock import HostClock
from frtop_tui.job.job_activity import activity_of, activity_text
from frtop_tui.job.jobs import SETTLE_NS, JobPicker, JobRanks, by_job
from frtop_tui.job.model import Problem
from frtop_tui.job.naming import RankPid, job_call, job_key, job_names, job_place
from frtop_tui.job.record import RankRecord
from frtop_tui.job.state import JobState

S = 1_000_000_000
NOW = 1000 * S
FIRST = wire.Job("node0", 29500, 2, "none", 0, "n1", "train.py")
SECOND = structs.replace(FIRST, attempt=1)  # an elastic restart keeps its store, and the nonce
OTHER = wire.Job("node0", 29501, 2, "none", 0, "n2", "other.py")
UNPREPARED = structs.replace(FIRST, run_id="", nonce="from outside")
ENDED = wire.ExitInfo(NOW - 5 * S, 1)


def record(
    job: wire.Job,
    rank: int = 0,
    *,
    host: str = "h",
    at: int = 0,
    ended: bool = False,
    prepared: bool = True,
) -> RankRecord:
    identity = wire.Identity(
        100 + rank, 1, rank, rank, job, started_ns=NOW + (at - 60) * S, prepared=prepared
    )
    one = RankRecord(host, HostClock(), rank, identity)
    one.apply(wire.RankUpdate(rank, exit_info=ENDED if ended else None), NOW)
    return one


def progress(record: RankRecord, number: int, issued_ns: int, *pending: wire.Op) -> None:
    moved = wire.GroupProgress(1, number, 0, issued_ns)
    record.apply(wire.RankUpdate(0, group_progress=(moved,), pending=pending), NOW)


def jobs_of(*records: RankRecord) -> list[JobRanks]:
    return by_job(records)[0]


def shown(picker: JobPicker, now: int, *records: RankRecord) -> wire.Job | None:
    chosen = picker.pick(jobs_of(*records), None, now)
    return chosen.job if chosen is not None else None


# which ranks are one job


def test_ranks_without_a_recorder_are_the_rest_of_the_prepared_job_there() -> None:
    (job,) = jobs_of(record(FIRST), record(UNPREPARED, 1, prepared=False))
    assert (job.ranks, job.unprepared, job.job) == (2, 1, FIRST)


@pytest.mark.parametrize(
    "others",
    [
        [record(FIRST), record(UNPREPARED, 0, prepared=False)],
        [record(FIRST, ended=True), record(UNPREPARED, 1, prepared=False)],
        [record(FIRST), record(structs.replace(UNPREPARED, run_id="nightly"), 1, prepared=False)],
        [record(FIRST), record(structs.replace(UNPREPARED, world_size=4), 1, prepared=False)],
        [record(FIRST), record(structs.replace(UNPREPARED, master_port=1), 1, prepared=False)],
    ],
    ids=["a rank is in both", "the prepared one has ended", "run", "size", "port"],
)
def test_a_job_without_a_recorder_that_differs_stays_its_own(others: list[RankRecord]) -> None:
    assert len(jobs_of(*others)) == 2


def test_ranks_without_a_recorder_that_fit_two_jobs_stay_alone() -> None:
    # Two jobs at one address on different hosts: nothing tells whose rest it is.
    second = structs.replace(FIRST, nonce="n9")
    assert len(jobs_of(record(FIRST), record(second), record(UNPREPARED, 1, prepared=False))) == 3


def test_dead_ranks_of_an_earlier_attempt_are_not_in_the_new_one() -> None:
    jobs = jobs_of(
        record(FIRST, 0, ended=True), record(FIRST, 1, ended=True),
        record(SECOND, 0, at=30), record(SECOND, 1, at=30),
    )  # fmt: skip
    assert [(job.job.attempt, len(job.records), job.lives) for job in jobs] == [
        (1, 2, True), (0, 2, False),
    ]  # fmt: skip


@pytest.mark.parametrize("nonce", ["n9", ""])
def test_new_ranks_on_the_port_of_an_ended_job_are_another_job(nonce: str) -> None:
    again = structs.replace(FIRST, nonce=nonce)
    jobs = jobs_of(record(FIRST, 0, ended=True), record(again, 0, at=30))
    assert [(job.job.nonce, len(job.records)) for job in jobs] == [(nonce, 1), ("n1", 1)]


@pytest.mark.parametrize(("address", "host", "jobs"), [
    ("node0", "elsewhere", 1),
    ("localhost", "h", 1),
    ("localhost", "elsewhere", 2),  # that is another localhost
    ("127.0.0.1", "elsewhere", 2),
])  # fmt: skip
def test_where_a_rank_without_a_nonce_belongs(address: str, host: str, jobs: int) -> None:
    job = structs.replace(FIRST, master_addr=address)
    early = structs.replace(job, nonce="")
    assert len(jobs_of(record(job, 0), record(early, 1, host=host))) == jobs


def test_two_jobs_at_once_on_one_host() -> None:
    jobs = jobs_of(record(FIRST, 0), record(OTHER, 0, at=1), record(FIRST, 1))
    assert [(job.job.name, len(job.records)) for job in jobs] == [("other.py", 1), ("train.py", 2)]


# names


def test_attempts_have_names_of_their_own() -> None:
    assert "train.py#1" in job_names(SECOND)
    assert "node0:29500#1" in job_names(SECOND)
    assert "train.py#1" not in job_names(FIRST)
    assert "attempt 1" in job_place(SECOND)


@pytest.mark.parametrize(("job", "others", "call"), [
    (FIRST, [OTHER], "train.py"),
    (FIRST, [SECOND], "train.py#0"),
    (structs.replace(FIRST, run_id="r7"), [structs.replace(FIRST, run_id="r8")], "r7"),
    (FIRST, [structs.replace(FIRST, master_port=29501)], "node0:29500"),
    # `--job none`, torchrun's default, would read as if no job were shown.
    (FIRST, [structs.replace(FIRST, master_port=29501, run_id="r8")], "node0:29500"),
    (FIRST, [structs.replace(FIRST, nonce="n9")], "n1"),
])  # fmt: skip
def test_what_to_type_for_exactly_this_job(
    job: wire.Job, others: list[wire.Job], call: str
) -> None:
    found = job_call(job, [job, *others])
    assert found == call
    assert not any(found in job_names(other) for other in others)


# choice of the shown job


@pytest.mark.parametrize(
    ("later", "records", "then"),
    [
        (SETTLE_NS, [record(FIRST), record(OTHER, at=30)], FIRST),
        (S, [record(FIRST), record(OTHER, at=30)], OTHER),  # hosts report in any order
        (60 * S, [record(FIRST, ended=True), record(OTHER, at=30)], OTHER),
        (60 * S, [record(FIRST, ended=True), record(OTHER, at=30, ended=True)], FIRST),
    ],
    ids=["it stays", "at first the newest", "after its end the newest living", "no other lives"],
)
def test_the_shown_job(later: int, records: list[RankRecord], then: wire.Job) -> None:
    picker = JobPicker()
    assert shown(picker, NOW, record(FIRST)) == FIRST
    assert shown(picker, NOW + later, *records) == then


def test_a_chosen_job_stays() -> None:
    picker = JobPicker()
    for ended in (False, True):
        jobs = jobs_of(record(FIRST, ended=ended), record(OTHER, at=30))
        chosen = picker.pick(jobs, job_key(FIRST), NOW + 60 * S)
        assert chosen is not None
        assert chosen.job == FIRST


def test_a_job_that_was_chosen_before_its_nonce_was_known() -> None:
    early = structs.replace(FIRST, nonce="")
    chosen = JobPicker().pick(jobs_of(record(FIRST)), job_key(early), NOW)
    assert chosen is not None


def test_a_chosen_job_that_is_gone_is_a_problem_with_a_next_step() -> None:
    state = reported(FIRST)
    frame = state.frame(NOW, 0, job_key(OTHER))
    assert frame.job is None
    assert frame.problem == Problem(
        "the chosen job is no longer known: there is train.py (node0:29500)", "--job train.py"
    )


def reported(*jobs: wire.Job) -> JobState:
    state = JobState()
    ranks = tuple(
        wire.RankUpdate(n + 1, wire.Identity(1, 1, 0, 0, job, started_ns=NOW + (n - 60) * S))
        for n, job in enumerate(jobs)
    )
    update = wire.Update("h", "i", 1, NOW, 0, ranks, full=True)
    assert state.apply("h", update, NOW)
    return state


# notes on other attempts


def notes(picker: JobPicker, wanted: str | None, now: int, *records: RankRecord) -> tuple[str, ...]:
    jobs = jobs_of(*records)
    chosen = picker.pick(jobs, wanted, now)
    assert chosen is not None
    return picker.notes(chosen, jobs, now)


def test_a_newer_attempt_of_the_chosen_job_is_noted() -> None:
    (note,) = notes(
        JobPicker(), "train.py#0", NOW, record(FIRST, ended=True), record(SECOND, at=30)
    )
    assert note == (
        "this is attempt 0, which has ended; attempt 1 has lived for 30s: --job train.py#1"
    )


def test_the_end_of_the_attempt_before_is_noted() -> None:
    picker = JobPicker()
    assert not notes(picker, None, NOW, record(FIRST))
    late = NOW + 60 * S
    (note,) = notes(picker, None, late, record(FIRST, ended=True), record(SECOND, at=30))
    assert note == "this is attempt 1; attempt 0, shown before, has ended: --job train.py#0"


def test_another_job_is_no_attempt() -> None:
    picker = JobPicker()
    notes(picker, None, NOW, record(FIRST))
    assert not notes(picker, None, NOW + 60 * S, record(FIRST, ended=True), record(OTHER, at=30))


# rights


@pytest.mark.parametrize(("rights", "read_only"), [
    ([True, True], ""),
    ([True, False], ""),  # some ranks may be asked
    ([False, False], "our key may only read on g, h"),
])  # fmt: skip
def test_the_reason_why_ranks_must_not_be_asked(rights: list[bool], read_only: str) -> None:
    state = JobState()
    for rank, (host, may_act) in enumerate(zip("gh", rights, strict=True)):
        identity = wire.Identity(1, 1, rank, rank, FIRST, started_ns=NOW)
        update = wire.Update(host, host, 1, NOW, 0, (wire.RankUpdate(1, identity),), full=True)
        state.apply(host, update, NOW)
        state.set_on_host(host, may_act=may_act)
    frame = state.frame(NOW, 0)
    assert frame.read_only == read_only
    assert [host.may_act for host in frame.hosts] == rights


def test_a_read_only_start_is_the_first_reason() -> None:
    assert JobState("started with --read-only").frame(NOW, 0).read_only


# activity of other jobs


def test_the_activity_of_a_job_that_is_not_shown() -> None:
    one = record(FIRST, 0)
    progress(one, 7, NOW - 250 * S, wire.Op(9, 1, 7, None, None, NOW - 250 * S, sync=True))
    late = record(FIRST, 1)
    progress(late, 6, NOW - 260 * S)
    (job,) = jobs_of(one, late)
    pulse = activity_of(job, NOW)
    assert (pulse.age_s, pulse.quiet_s, pulse.waits_s) == (60, 250, 250)
    assert activity_text(pulse) == "waits 4m10s"
    busy = record(FIRST, 1)
    progress(busy, 6, NOW - S)
    assert activity_text(activity_of(jobs_of(one, busy)[0], NOW)) == "last op 1.0s ago"


@pytest.mark.parametrize(
    ("dated", "text"), [(False, "last op at least 40s ago"), (True, "last op 40s ago")]
)
def test_an_op_that_was_there_at_the_first_look_is_at_least_so_old(
    *, dated: bool, text: str
) -> None:
    """A job that hangs for hours must not look as if it had worked until a moment ago."""
    one, other = record(FIRST, 0, prepared=False), record(FIRST, 1, prepared=False)
    for each, ago in ((one, 40), (other, 41)):
        last = wire.Op(9, 1, 7, None, None, NOW - ago * S, dated=dated)
        moved = wire.GroupProgress(1, 7, 0, NOW - ago * S, last)
        each.apply(wire.RankUpdate(0, group_progress=(moved,)), NOW)
    assert activity_text(activity_of(jobs_of(one, other)[0], NOW)) == text


def test_silent_hosts_have_no_activity() -> None:
    one = record(FIRST, 0)
    progress(one, 7, NOW - 250 * S)
    one.clock.silent = True
    assert activity_text(activity_of(jobs_of(one)[0], NOW)) == ""


def test_a_name_of_several_living_jobs_is_noted() -> None:
    newer = structs.replace(FIRST, master_port=29501, nonce="n9")
    jobs = jobs_of(record(FIRST), record(newer, at=30), record(OTHER, at=40))
    picker = JobPicker()
    chosen = picker.pick(jobs, "train.py", NOW)
    assert chosen is not None
    assert picker.notes(chosen, jobs, NOW, "train.py") == (
        "2 jobs are called train.py: this is the newest; others: --job node0:29500",
    )
    assert not picker.notes(chosen, jobs, NOW, "n9")


# hosts


def test_a_host_that_comes_and_goes_shows_its_last_problem() -> None:
    state = reported(FIRST)
    for second in (1, 5):
        state.set_host("h", "failed", Problem("it went away", "wait"), NOW + second * S)
        state.set_host("h", "reporting")
    (host,) = state.frame(NOW + 15 * S, 0).hosts
    assert host.notes == ("lost 2 times in the last 10 minutes, last 10s ago: it went away",)
    (later,) = state.frame(NOW + 3600 * S, 0).hosts
    assert not later.notes


def test_a_measured_clock_is_shown_with_its_error() -> None:
    state = reported(FIRST)
    assert state.frame(NOW, 0).hosts[0].clock_error_ns is None
    host_ns = NOW - 7 * S
    state.measure_clock("h", NOW - 10, NOW + 10, wire.TimeResponse(1, host_ns, NOW - 2 * S))
    frame = state.frame(NOW + 10, NOW)  # our wall clock is what our monotonic one shows
    (host,) = frame.hosts
    assert host.clock_error_ns == 10
    assert host.clock_ns == 2 * S - 10
    assert frame.ranks[0].clock_ns == 7 * S


def test_tensors_stay_with_their_rank() -> None:
    state = reported(FIRST)
    answer = wire.TensorsResponse(1, "h", 1, 5, error="silent", help="it holds the GIL")
    state.apply_answer("h", answer)
    state.apply_answer("h", structs.replace(answer, key=99))
    assert state.frame(NOW, 0).ranks[0].tensors == answer
    full = wire.Update("h", "i", 2, NOW, 0, (wire.RankUpdate(1, identity_of(FIRST)),), full=True)
    state.apply("h", full, NOW)
    assert state.frame(NOW, 0).ranks[0].tensors == answer


def identity_of(job: wire.Job) -> wire.Identity:
    return wire.Identity(1, 1, 0, 0, job, started_ns=NOW)


# jobs that nobody prepared

PLAIN = wire.Job("", 0, 2, nonce="p1", name="plain.py")


def test_a_job_without_an_address_is_named_without_one() -> None:
    assert job_place(PLAIN) == "plain.py"
    assert job_place(PLAIN, ended=True) == "plain.py (ended)"
    assert job_place(structs.replace(PLAIN, attempt=1)) == "plain.py (attempt 1)"


def test_a_living_job_that_nobody_prepared_comes_before_a_prepared_one_that_has_ended() -> None:
    plain = record(PLAIN, at=-600, prepared=False)
    ended = record(OTHER, at=30, ended=True)
    assert [one.job for one in jobs_of(ended, plain)] == [PLAIN, OTHER]
    assert shown(JobPicker(), NOW, ended, plain) == PLAIN


def test_of_living_jobs_the_newest_is_shown_whether_prepared_or_not() -> None:
    assert shown(JobPicker(), NOW, record(PLAIN, prepared=False), record(OTHER, at=9)) == OTHER
    assert shown(JobPicker(), NOW, record(PLAIN, at=9, prepared=False), record(OTHER)) == PLAIN


def test_a_job_is_found_by_the_pid_of_a_rank() -> None:
    jobs = jobs_of(record(FIRST, 0, at=30), record(PLAIN, 1, prepared=False))
    chosen = JobPicker().pick(jobs, RankPid(101), NOW)
    assert chosen is not None
    assert chosen.job == PLAIN
    assert JobPicker().pick(jobs, RankPid(7), NOW) is None


def test_the_pid_of_an_ended_rank_counts_only_where_none_lives() -> None:
    """A pid is used again, and an elastic job outlives ranks."""
    jobs = jobs_of(record(FIRST, 0), record(FIRST, 1, ended=True), record(PLAIN, 1, at=-99))
    chosen = JobPicker().pick(jobs, RankPid(101), NOW)
    assert chosen is not None
    assert chosen.job == PLAIN
    ended = jobs_of(record(FIRST, 1, ended=True))
    assert JobPicker().pick(ended, RankPid(101), NOW) is not None


def test_a_pid_that_is_no_rank_is_a_problem_with_what_there_is() -> None:
    frame = reported(FIRST).frame(NOW, 0, RankPid(77))
    assert frame.problem == Problem(
        "no rank has pid 77: there is train.py (node0:29500)", "--job train.py"
    )
    nothing = reported().frame(NOW, 0, RankPid(77)).problem
    assert nothing is not None
    assert nothing.text == "no rank has pid 77: no job was found on this host"
    assert "frtop jobs" in nothing.next


def test_an_activity_counts_ranks_hosts_and_recorders() -> None:
    records = [
        record(FIRST, 0),
        record(FIRST, 1, host="g", prepared=False),
        record(FIRST, 1, host="g", prepared=False, ended=True),  # the process before
    ]
    records[1].clock = HostClock()
    records[2].clock = records[1].clock
    (job,) = jobs_of(*records)
    pulse = activity_of(job, NOW)
    assert (pulse.ranks, pulse.unprepared, pulse.hosts, pulse.ended_s) == (2, 1, 2, None)
    (over,) = jobs_of(record(FIRST, 0, ended=True))
    assert activity_of(over, NOW).ended_s == 5


def test_what_the_ranks_of_another_job_note_is_said_once() -> None:
    records = [record(PLAIN, rank, prepared=False) for rank in (0, 1, 2)]
    for one in records[:2]:
        one.apply(
            wire.RankUpdate(one.key, notes=("c10d state not readable: stripped libtorch",)), NOW
        )
    (job,) = jobs_of(*records)
    assert activity_of(job, NOW).notes == ("ranks 0-1: c10d state not readable: stripped libtorch",)


def test_many_different_notes_are_cut() -> None:
    one = record(PLAIN, prepared=False)
    one.apply(wire.RankUpdate(0, notes=tuple(f"note {n}" for n in range(11))), NOW)
    (job,) = jobs_of(one)
    notes = activity_of(job, NOW).notes
    assert len(notes) == 9
    assert notes[-1] == "and 3 more notes from its ranks"

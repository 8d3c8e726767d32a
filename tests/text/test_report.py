"""The verdict as text, as JSON, and as an exit status."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from msgspec import structs
from msgspec.structs import replace
from msgspec.structs import replace as replace_job

from diagnosis.scenes import Scene, one_sleeps, three_wait
from diagnosis.slow_jobs import Meeting, SteppingJob, data_parallel
from frtop_probe.wire import Job
from frtop_tui.diagnosis.model import Frame, JudgedRank, Verdict, VerdictKind, Why
from frtop_tui.job.model import (
    Coverage,
    Health,
    JobActivity,
    Problem,
    RankState,
    Recorded,
    as_rank,
)
from frtop_tui.job.statistics import JobStatistics
from frtop_tui.text.exit_status import exit_status
from frtop_tui.text.health_words import health_words
from frtop_tui.text.json_document import document
from frtop_tui.text.plain import text
from frtop_tui.text.verdict import status

COMPLETE = Coverage(4, 4)
PARTIAL = Coverage(4, 3, (2,))


def verdict(kind: VerdictKind, **fields: Any) -> Verdict:
    known: dict[str, Any] = {
        "confidence": "confirmed", "progress": "none", "culprits": (2,), "headline": "it",
        "why": Why("unknown", "unknown", "because"), "next": "look",
    }  # fmt: skip
    return Verdict(kind, **{**known, **fields})


@pytest.mark.parametrize(("verdicts", "health", "coverage", "status"), [
    ((), "healthy", COMPLETE, 0),
    ((), "ended", COMPLETE, 0),
    ((), "starting", COMPLETE, 0),
    ((), "healthy", PARTIAL, 4),
    ((), "waiting", COMPLETE, 4),
    ((), "unreachable", Coverage(4, 0, (0, 1, 2, 3)), 4),
    ((), "empty", Coverage(), 4),
    ((verdict("dead"),), "dead", COMPLETE, 3),
    ((verdict("mismatch", progress="active"),), "mismatch", COMPLETE, 3),
    ((verdict("not_entered"),), "hung", PARTIAL, 3),
    ((verdict("not_entered", progress="active"),), "held up", COMPLETE, 5),
    ((verdict("not_entered", progress="unknown"),), "held up", COMPLETE, 5),
    ((verdict("slow", progress="active"),), "healthy", PARTIAL, 5),
    ((verdict("slow", progress="active", confidence="suspect"),), "slow", COMPLETE, 4),
    ((verdict("undecided"),), "undecided", COMPLETE, 4),
    ((verdict("undecided"), verdict("dead")), "undecided", COMPLETE, 3),
    ((verdict("slow"), verdict("not_entered")), "hung", COMPLETE, 3),
])  # fmt: skip
def test_exit_status(
    verdicts: tuple[Verdict, ...], health: Health, coverage: Coverage, status: int
) -> None:
    frame = Frame(0, 0, health=health, verdicts=verdicts, coverage=coverage)
    assert exit_status(frame) == status


def hung() -> Frame:
    scene = three_wait()
    scene.fetches(2, worker=2, pid=90112)
    scene.worker(2, 90112, "D", "read", "/data/shard-0412")
    return scene.settle()


def test_the_text_says_who_what_why_how_long_and_what_next() -> None:
    lines = text(hung())
    assert lines[0] == "train.py: HUNG for 14s; 4 of 4 ranks reporting, 1 host"
    assert lines[2] == (
        "NOT ENTERED: rank 2 (node0 pid 1002) has not entered all_reduce #8 of default_pg;"
        " ranks 0-1,3 wait"
    )
    assert lines[3] == (
        "  why   data: MainThread waits for DataLoader worker 2 of 4 (pid 90112):"
        " read /data/shard-0412, state D, for 14s; train.py:14 (train)"
    )
    assert "  killed by its own timeout in 29m46s" in lines
    assert any(line.startswith("  next  ") and "/data/shard-0412" in line for line in lines)


def test_a_suspicion_is_marked_in_the_headline() -> None:
    scene = one_sleeps()
    assert text(scene.judge().frame)[2].startswith("NOT ENTERED (suspect): ")


def test_a_hang_whose_job_has_ended_is_told_from_one_that_goes_on() -> None:
    frame = hung()
    ended = frame.now_ns - 4_000_000_000

    def with_states(*states: RankState) -> Frame:
        ranks = {
            number: replace(rank, state=state, state_since_ns=ended)
            for (number, rank), state in zip(frame.ranks.items(), states, strict=True)
        }
        return replace(frame, ranks=ranks)

    for now in (frame, with_states("dead", "dead", "dead", "blocked")):
        assert "HUNG for 14s;" in text(now)[0]
        assert not any("ended" in line for line in text(now))
    ended_frame = with_states("dead", "done", "dead", "dead")
    (one,) = ended_frame.verdicts
    assert status(one, ended_frame) == "not entered · confirmed · for 10s · before the job ended"
    assert status(one, frame) == "not entered · confirmed · no progress · for 14s"
    over = text(ended_frame)
    assert "HUNG for 10s, ended 4.0s ago;" in over[0]
    assert over[2].startswith("NOT ENTERED, as seen before the job ended: rank 2")
    at_once = replace(ended_frame, since_ns=ended_frame.until_ns)
    assert health_words(at_once) == "HUNG, ended 4.0s ago"
    last = replace(one, since_ns=at_once.since_ns)
    assert status(last, ended_frame) == "not entered · confirmed · before the job ended"


def test_a_healthy_job_is_called_healthy() -> None:
    frame = Scene(4).settle()
    assert frame.job is not None
    lines = text(replace(frame, job=replace_job(frame.job, attempt=2)))
    assert lines[0].startswith("train.py, attempt 2: HEALTHY")
    assert lines[1].startswith("no rank waits unusually long; whether one is slow is not known")
    recorded = text(replace(frame, recorded=Recorded("capture", "job.cap", 0)))
    assert recorded[2] == "no rank waits unusually long"


@pytest.mark.parametrize(
    ("steps", "says"),
    [
        (0, "whether one is slow is not known"),
        (20, "too short a time"),  # some seconds more tell more
        (120, "in 24s: 8 % of the time or more would show"),
    ],
)
def test_nobody_is_called_on_time_before_ranks_were_compared(steps: int, says: str) -> None:
    statistics = data_parallel().run(steps).statistics()
    frame = replace(Scene(4).settle(), statistics=statistics)
    assert says in text(frame)[1]
    assert bool(document(frame)["compared_s"]) == (steps == 120)
    assert frame.is_compared == (steps != 20)


def ahead_of_devices() -> SteppingJob:
    """Hosts issue 400 ms ahead of their devices: when a device begins an op is not known."""
    job = data_parallel()
    job.meetings[0].transfer, job.meetings[0].waits = (lambda _: 400.0), False
    return job


def of_kind(kind: str) -> SteppingJob:
    job = data_parallel()
    job.meetings[0].kind = kind
    return job


@pytest.mark.parametrize(
    ("job", "shape"),
    [
        (ahead_of_devices(), {"device": True}),
        (of_kind("broadcast"), {}),
        (data_parallel(error_ns=None), {}),
        (data_parallel(2), {"p2p": [(0, 1)]}),
    ],
    ids=["devices", "broadcasts", "clocks", "stages"],
)
def test_nobody_is_called_on_time_who_cannot_be_compared(
    job: SteppingJob, shape: dict[str, Any]
) -> None:
    frame = frame_of(job, job.statistics, shape)
    assert text(frame)[1].endswith(
        "whether one is slow is not known: no two ranks with the same work could be compared"
    )
    assert document(frame)["compared_s"] == 0


def frame_of(
    job: SteppingJob, statistics: Callable[[], JobStatistics], shape: dict[str, Any]
) -> Frame:
    seen = job.run(120).frame(**shape)
    return replace(
        Scene(4).settle(),
        statistics=statistics(),
        groups=seen.groups,
        ranks={rank: as_rank(JudgedRank, view) for rank, view in seen.ranks.items()},
    )


def test_nobody_is_called_on_time_who_is_late_for_reasons_that_are_not_known() -> None:
    """Stages differ by design, and without recorded steps nothing tells what is their own."""
    job = SteppingJob(4)
    pairs = ((0, 2), (1, 3))
    job.meetings = [Meeting(pairs, lambda rank, step: 200.0 + 50.0 * (rank == 3))]
    frame = frame_of(job, lambda: job.statistics(steps=False), {"p2p": [(0, 1), (2, 3)]})
    assert text(frame)[1] == (
        "no rank waits unusually long; late again and again: rank 3, perhaps only because they"
        " waited for others"
    )


def test_ranks_that_nobody_has_reported_are_listed_and_unreachable() -> None:
    scene = Scene(4)
    scene.gone(3)
    frame = scene.settle()
    lines = text(frame)
    assert "3 of 4 ranks reporting; not 3" in lines[0]
    assert any(line.startswith("note  rank 3 never reported") for line in lines)
    ranks = document(frame)["ranks"]
    assert list(ranks) == ["0", "1", "2", "3"]
    assert ranks["3"] == {**dict.fromkeys(ranks["0"]), "state": "unreachable"}


def test_other_running_jobs_are_one_line() -> None:
    other = Job("node0", 29501, 4, name="pipe.py")
    found = Scene(4).settle()
    assert found.job is not None
    ended = replace_job(found.job, nonce="old"), replace_job(found.job, nonce="older")
    found = replace(
        found,
        other_jobs=(other, *ended),
        running_jobs=(other,),
        activities=(JobActivity(other, 300, quiet_s=252, waits_s=252),),
    )
    line = "other jobs: 1 live, 2 ended: pipe.py (node0:29501), waits 4m12s, --job pipe.py"
    assert text(found)[-1] == line
    other_jobs = document(found)["other_jobs"]
    assert [(one["live"], one["quiet_s"]) for one in other_jobs] == [
        (True, 252),
        (False, None),
        (False, None),
    ]
    recorded = replace(found, recorded=Recorded("capture", "x.cap", found.wall_ns))
    assert not any("--job" in line for line in text(recorded))


def test_an_ended_job_shows_how_long_ago_it_ended() -> None:
    scene = Scene(4)
    for rank in range(4):
        scene.ends(rank, exit_code=0, clean=True, ago=300 + rank)
    lines = text(scene.judge().frame)
    assert lines[0].startswith("train.py: ENDED for 5m00s;")
    assert lines[1] == "its ranks have ended, and nobody waits for any of them"


def test_a_number_that_cannot_be_compared_is_not_in_the_document() -> None:
    scene = Scene(4, exact=False)
    scene.waits([0, 1, 3], "all_reduce", for_s=10)
    scene.sleeps(2)
    found = document(scene.settle())
    assert found["ranks"]["0"]["blocked_on"]["number"] is None


def test_without_ranks_the_text_is_a_title_and_the_problem() -> None:
    frame = Frame(0, 0, problem=Problem("no agent", "start one"))
    assert text(frame) == ["frtop: connecting", "no agent; start one"]
    found = document(frame)
    assert (found["job"], found["verdicts"]) == (None, [])
    assert found["environment"] == {}  # an empty list of differences: all ranks agree


def test_the_document_has_the_documented_keys() -> None:
    found = json.loads(json.dumps(document(hung())))
    assert {"job", "verdicts", "coverage", "ranks"} <= set(found)
    (first,) = found["verdicts"]
    assert first["kind"] == "not_entered"
    assert first["confidence"] == "confirmed"
    assert first["progress"] == "none"
    assert first["culprits"] == [2]
    assert first["parties"] == []
    assert first["victims"] == "0-1,3"
    assert first["group"] == {"name": "0", "description": "default_pg", "ranks": "0-3"}
    assert first["op"] == {"number": 8, "kind": "all_reduce"}
    assert first["why"]["cause"] == "dataloader"
    assert first["why"]["layer"] == "data"
    assert first["evidence"]
    assert "/data/shard-0412" in first["next"]
    assert found["coverage"]["complete"] is True
    assert found["ranks"]["2"]["state"] == "late"
    assert found["ranks"]["2"]["host"] == "node0"
    assert found["ranks"]["2"]["pid"] == 1002
    blocked_on = found["ranks"]["0"]["blocked_on"]
    assert (blocked_on["kind"], blocked_on["number"], blocked_on["dated"]) == (
        "all_reduce", 8, True,
    )  # fmt: skip
    assert found["job"]["prepared"] is True
    assert found["ranks"]["0"]["prepared"] is True


def test_a_job_without_the_recorder_says_so_and_its_ages_are_least_ones() -> None:
    frame = unprepared(hung())
    found = document(frame)
    assert found["job"]["prepared"] is False
    assert found["ranks"]["2"]["prepared"] is False
    assert found["ranks"]["0"]["blocked_on"]["dated"] is False
    title = text(frame)[0]
    assert ": HUNG for at least " in title
    # An op that came while it was watched is as old as it says.
    watched = unprepared(hung(), dated=True)
    assert "at least" not in text(watched)[0]
    assert document(watched)["ranks"]["0"]["blocked_on"]["dated"] is True


def test_other_jobs_say_whether_they_are_prepared() -> None:
    other = Job("node0", 29600, 4, name="y.py", nonce="n3")
    frame = replace(
        Scene(4).settle(),
        other_jobs=(other,),
        activities=(JobActivity(other, 60.0, ranks=4, unprepared=4, hosts=1),),
    )
    assert document(frame)["other_jobs"][0]["prepared"] is False
    assert document(replace(frame, activities=()))["other_jobs"][0]["prepared"] is None


def unprepared(frame: Frame, *, dated: bool = False) -> Frame:
    """The same, as if no rank had a recorder, and all ops were there at the first look."""
    ranks = {
        number: replace(
            view,
            identity=structs.replace(view.identity, prepared=False),
            status=None,
            blocked_on=view.blocked_on and replace(view.blocked_on, dated=dated),
        )
        for number, view in frame.ranks.items()
    }
    coverage = replace(frame.coverage, unprepared=tuple(ranks))
    return replace(frame, ranks=ranks, coverage=coverage)


def test_parties_are_lists_of_ranks() -> None:
    scene = Scene(2)
    scene.waits([0], "all_reduce", for_s=3)
    scene.waits([1], "barrier", for_s=3)
    (first,) = document(scene.settle())["verdicts"]
    assert first["culprits"] == []
    assert first["parties"] == [[0], [1]]


@pytest.mark.parametrize(("other", "call"), [
    ({}, "train.py"),
    ({"name": "train.py"}, "run"),
    ({"name": "train.py", "run_id": "run"}, "nonce"),
    ({"name": "nonce", "run_id": "train.py"}, "run"),
])  # fmt: skip
def test_the_document_says_how_to_call_a_job_and_the_others(
    other: dict[str, str], call: str
) -> None:
    known = Job("node0", 29500, 4, "r2", 0, "n2", "x.py")
    known = structs.replace(known, **other)
    found = document(replace(Scene(4).settle(), other_jobs=(known,)))
    assert found["job"]["call"] == call
    assert [one["nonce"] for one in found["other_jobs"]] == ["n2"]
    assert found["recorded"] is None


def test_hosts_say_how_well_their_clocks_are_known() -> None:
    base = Scene(2, hosts=2).settle()
    first = replace(base.hosts[0], clock_error_ns=1_500_000)
    hosts = document(replace(base, hosts=(first, *base.hosts[1:])))["hosts"]
    assert [(host["name"], host["state"]) for host in hosts] == [
        ("node0", "reporting"), ("node1", "reporting"),
    ]  # fmt: skip
    assert hosts[0]["clock_error_s"] == 0.0015

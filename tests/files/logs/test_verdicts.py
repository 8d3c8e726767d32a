"""What is concluded from logs: every era of torch, every way in which lines of ranks are mixed."""

from __future__ import annotations

import gzip
import io
import json
import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from files.flightrecorder.writer import one_missing, write_dumps
from files.frames import notes
from files.logs.eras import (
    ERAS,
    NAMED_GROUPS,
    TORCH_2_2,
    TORCH_2_7,
    Era,
    Op,
    disagreed,
    fingerprint,
    interleaved,
    joined,
    one_late,
    raised,
    table,
)
from frtop_probe.ring.rank_ranges import fold
from frtop_tui.cli import main
from frtop_tui.diagnosis.model import Frame
from frtop_tui.errors import Unreadable
from frtop_tui.files.loader import open_paths
from frtop_tui.files.logs.job import frame_of
from frtop_tui.files.logs.patterns import SECONDS, WORDS
from frtop_tui.files.logs.reader import Reader
from frtop_tui.files.logs.scan import searched
from frtop_tui.text.html_page import html_page
from frtop_tui.text.incident import incident_of
from frtop_tui.text.json_document import document
from frtop_tui.text.notes import recorded_lines
from frtop_tui.text.plain import text as report

CLOSED = (
    "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553]"
    " Connection closed by peer [10.0.0.3]:41234"
)
NCCL = (
    "torch.distributed.DistBackendError: NCCL error in: x.cpp:3690, unhandled system error,"
    " NCCL version 2.27.5"
)
CAME = (
    "RuntimeError: Rank 2 successfully reached monitoredBarrier, but received errors while waiting"
    " for send/recv from rank 0. Please check rank 0 logs for faulty rank."
)
RESTART = (
    "W1129 10:12:00.1 42 torch/distributed/elastic/agent/server/api.py:900] [default] Worker group"
    " FAILED. 2/3 attempts left; will restart worker group"
)
REMARKS = (
    "Nov 29 10:11:00 node07 kernel: NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
    "slurmstepd: error: Detected 1 oom_kill event in StepId=123.0. Some of the step tasks ...",
    "slurmstepd: error: *** STEP 123.0 ON node07 CANCELLED AT 2026-11-29T10:11:12 ***",
    "srun: error: node07: task 3: Killed",
    "node07:4242:4300 [3] misc/socket.cc:50 NCCL WARN socketProgress: Connection closed",
    "INFO all is well",
)
TP = ("112", "mesh_tp")
DP = ("119", "mesh_dp")


@pytest.fixture
def judged(tmp_path: Path) -> Callable[..., Frame]:
    """Judges logs, by name of their files; a single one is called job.out."""

    def judge(*logs: str, **named: str) -> Frame:
        files = {**{f"job{n or ''}.out": log for n, log in enumerate(logs)}}
        files |= {f"{name}.log": log for name, log in named.items()}
        paths = []
        for name, log in files.items():
            (tmp_path / name).write_text(log)
            paths.append(tmp_path / name)
        return open_paths(paths)

    return judge


Judge = Callable[..., Frame]


def said(frame: Frame) -> list[tuple[str, str]]:
    """The kind and the culprits of each verdict."""
    return [(verdict.kind, fold(verdict.culprits)) for verdict in frame.verdicts]


# -- a rank that is late


@pytest.mark.parametrize("era", NAMED_GROUPS, ids=lambda era: era.torch)
@pytest.mark.parametrize("mix", [joined, interleaved])
def test_a_rank_whose_counters_lack_the_op_is_named(
    judged: Judge, era: Era, mix: Callable[..., str]
) -> None:
    frame = judged(mix(*one_late(era)))
    assert said(frame) == [("not_entered", "1")]
    verdict = frame.verdicts[0]
    assert fold(verdict.victims) == "0,2-3"
    assert verdict.op is not None
    assert (verdict.op.kind, verdict.op.number) == ("all_gather_into_tensor", 21937)
    assert "last enqueued NCCL work: 21936" in verdict.evidence[0].lower().replace("nccl", "NCCL")
    assert verdict.evidence[0].startswith("job.out:")
    assert "a call may hang before that" in verdict.missing[0]


@pytest.mark.parametrize(
    "era", [era for era in ERAS if era not in NAMED_GROUPS], ids=lambda era: era.torch
)
def test_torch_without_names_of_groups_leaves_it_open(judged: Judge, era: Era) -> None:
    frame = judged(joined(*one_late(era)))
    assert said(frame) == [("undecided", "")]
    assert "ranks 0,2-3 gave up waiting after 10m00s" in frame.verdicts[0].headline
    assert "how far rank 1 came is not known" in frame.verdicts[0].headline
    assert "ranks of groups, which may not be those of the job" in notes(frame)


def torchrun(rank: int) -> str:
    return f"[default{rank}]:"


def slurm(rank: int) -> str:
    return f"{rank:>3}: "


def mpirun(rank: int) -> str:
    return f"[1,{rank}]<stderr>:"


def ray(rank: int) -> str:
    return f"\x1b[36m(RayTrainWorker pid={600 + rank}, ip=10.0.0.3)\x1b[0m "


def kubernetes(rank: int) -> str:
    return f"[pod/train-{rank}/main] 2026-11-29T18:11:12.123456789Z "


def progress(rank: int) -> str:
    return f" {rank}%|##        | 12/100 [00:12<00:23]\r {rank}%|##   | 13/100"


@pytest.mark.parametrize("before", [torchrun, slurm, mpirun, ray, kubernetes, progress])
@pytest.mark.parametrize("era", [TORCH_2_2, TORCH_2_7], ids=lambda era: era.torch)
def test_whatever_stands_before_the_lines(
    judged: Judge, before: Callable[[int], str], era: Era
) -> None:
    parts = [[before(rank) + line for line in part] for rank, part in enumerate(one_late(era))]
    frame = judged(interleaved(*parts))
    expected = [("undecided", "")] if era is TORCH_2_2 else [("not_entered", "1")]
    assert said(frame) == expected
    assert fold(frame.verdicts[0].victims or [0, 2, 3]) == "0,2-3"


def test_a_rank_without_lines_is_neither_blamed_nor_cleared(judged: Judge) -> None:
    frame = judged(joined(*(TORCH_2_7.gave_up(rank) for rank in (0, 1, 3))))
    assert said(frame) == [("undecided", "")]
    assert frame.coverage.unreachable == (2,)
    assert frame.verdicts[0].next.startswith("read the output of rank 2")


def test_a_laggard_is_only_suspected_while_another_rank_is_missing(judged: Judge) -> None:
    parts = one_late(TORCH_2_7, late=1, world=5)
    everyone, some = judged(joined(*parts)), judged(joined(*parts[:3], parts[4]))
    assert [one.verdicts[0].confidence for one in (everyone, some)] == ["confirmed", "suspect"]
    assert said(some) == [("not_entered", "1")]


def test_a_laggard_is_only_suspected_in_a_job_with_several_groups(judged: Judge) -> None:
    """It may have waited in the other one, where its own time was not out yet."""
    parts = one_late(TORCH_2_7)
    parts[0] += TORCH_2_7.was_asked(0, 5, 4, TP)
    frame = judged(joined(*parts))
    assert said(frame) == [("not_entered", "1")]
    assert frame.verdicts[0].confidence == "suspect"


def test_counters_alone_say_that_an_op_failed(judged: Judge) -> None:
    """The line before them, which says which op and why, may be missing."""
    op = Op(number=1116)
    failed = [TORCH_2_7.counters(rank, op, enqueued=1118) for rank in (1, 2)]
    frame = judged(joined(failed, TORCH_2_7.was_asked(0, 1115, 1115)))
    assert said(frame) == [("undecided", "")]
    assert "an op #1116 of default_pg timed out or failed" in " ".join(frame.verdicts[0].evidence)
    frame = judged(joined(failed, TORCH_2_7.gave_up(3, op), TORCH_2_7.was_asked(0, 1115, 1115)))
    assert said(frame) == [("not_entered", "0")]


def test_lines_of_ranks_in_files_of_their_own_are_one_job(judged: Judge) -> None:
    parts = one_late(TORCH_2_7)
    frame = judged(**{f"node{n}": joined(part) for n, part in enumerate(parts)})
    assert said(frame) == [("not_entered", "1")]
    assert any(line.startswith("node1.log:1: ") for line in frame.verdicts[0].evidence)


def test_a_call_that_ran_ahead_does_not_make_others_late(judged: Judge) -> None:
    """All are stuck in 37876; one queued another op after it."""
    op = Op(number=37876)
    frame = judged(joined(
        TORCH_2_7.gave_up(0, op, enqueued=37877),
        TORCH_2_7.gave_up(1, op, enqueued=37876),
        TORCH_2_7.was_asked(2, 37876, 37875),
    ))  # fmt: skip
    assert said(frame) == [("undecided", "")]


def test_who_signalled_and_who_wrote_first_is_not_blamed(judged: Judge) -> None:
    """The dump signal names rank 2, which only waited."""
    frame = judged(joined(*reversed(one_late(TORCH_2_7, late=0))))
    assert said(frame) == [("not_entered", "0")]


def test_counters_of_another_group_say_nothing(judged: Judge) -> None:
    op = Op(number=216, group=TP)
    frame = judged(joined(
        TORCH_2_7.gave_up(0, op, inside=0), TORCH_2_7.gave_up(1, op, inside=1),
        TORCH_2_7.was_asked(2, 6, 6), TORCH_2_7.was_asked(3, 5, 5),
    ))  # fmt: skip
    assert said(frame) == [("undecided", "")]
    assert set(frame.coverage.unreachable) == {2, 3}


def test_the_rank_of_the_work_line_is_that_of_any_group(judged: Judge) -> None:
    """`[rank15]: ... [Rank 1]`, then `[PG ID 11 PG GUID 112 Rank 0]`."""
    tp, dp = (
        Op(number=57, op="ALLREDUCE", numel=(32, 32), group=TP),
        Op(number=216, op="ALLTOALL_BASE", group=DP),
    )
    frame = judged(joined(
        [TORCH_2_7.timeout(15, tp, inside=1), TORCH_2_7.counters(15, tp, inside=0)],
        [TORCH_2_7.timeout(13, dp, inside=1), TORCH_2_7.counters(13, dp, inside=3, enqueued=220)],
    ))  # fmt: skip
    assert said(frame) == [("undecided", "")]
    assert {13, 15} <= frame.ranks.keys() - set(frame.coverage.unreachable)
    assert any("rank 13: DistBackendError: all_to_all_single #216 of mesh_dp timed out" in line
               for line in frame.verdicts[0].evidence)  # fmt: skip
    assert frame.ranks[15].exception is not None
    assert "of mesh_tp" in frame.ranks[15].exception.text
    assert not {0, 1} & frame.ranks.keys()


def test_groups_that_are_named_alike_are_not_compared(judged: Judge) -> None:
    """Two ranks with one rank in "the" group: these are two groups."""
    early, late = Op(number=10, group=("4", "")), Op(number=12, group=("4", ""))
    frame = judged(joined(
        TORCH_2_7.gave_up(0, late, inside=0), TORCH_2_7.gave_up(1, late, inside=1),
        TORCH_2_7.gave_up(2, early, inside=0), TORCH_2_7.was_asked(3, 9, 9, ("4", "")),
    ))  # fmt: skip
    assert said(frame) == [("undecided", "")]
    assert "ops of group 4 are not compared" in notes(frame)


@pytest.mark.parametrize("op", ["SEND", "RECV", "COALESCED"])
def test_messages_and_coalesced_calls_are_not_compared(judged: Judge, op: str) -> None:
    number = 18446744073709551615
    one = Op(op=op, numel=(number, number))
    parts = [TORCH_2_7.gave_up(0, one), TORCH_2_7.gave_up(2, one), TORCH_2_7.was_asked(1, 5, 5)]
    assert said(judged(joined(*parts))) == [("undecided", "")]


def test_before_the_first_op_the_counters_are_minus_one(judged: Judge) -> None:
    first = Op(number=1, op="ALLREDUCE", numel=(1, 1))
    log = joined(TORCH_2_7.gave_up(0, first), TORCH_2_7.was_asked(1, -1, -1))
    frame = judged(log)
    assert said(frame) in ([("not_entered", "1")], [("undecided", "")])
    unsigned = judged(log.replace(": -1", ": 18446744073709551615"))
    assert said(unsigned) == said(frame)


# -- ops that differ


def test_another_op_at_the_same_number_is_a_mismatch(judged: Judge) -> None:
    other = Op(op="ALLREDUCE", numel=(7, 7))
    frame = judged(joined(*(TORCH_2_7.gave_up(r, other if r == 3 else Op()) for r in range(4))))
    assert said(frame) == [("mismatch", "3")]
    assert any("job.out:" in line for line in frame.verdicts[0].evidence)


def test_sizes_differ_only_where_they_must_agree(judged: Judge) -> None:
    for op, expected in (("ALLREDUCE", "mismatch"), ("ALLTOALL_BASE", "undecided")):
        small, large = Op(op=op, numel=(8, 8)), Op(op=op, numel=(9, 9))
        frame = judged(
            joined(*(TORCH_2_7.gave_up(r, large if r == 3 else small) for r in range(4)))
        )
        assert said(frame)[0][0] == expected


def test_a_minority_is_not_blamed_while_a_rank_is_missing(judged: Judge) -> None:
    other = Op(op="ALLREDUCE", numel=(7, 7))
    parts = [TORCH_2_7.gave_up(0, Op()), TORCH_2_7.gave_up(1, Op()), TORCH_2_7.gave_up(3, other)]
    assert said(judged(joined(*parts))) == [("mismatch", "")]


def test_a_wrapper_names_the_one_rank_that_differs(judged: Judge) -> None:
    reduce, cast = fingerprint(5, "ALLREDUCE"), fingerprint(5, "BROADCAST")
    parts = [disagreed(r, reduce, 1, cast) for r in (0, 2, 3)]
    frame = judged(joined(*parts, disagreed(1, cast, 0, reduce)))
    assert said(frame) == [("mismatch", "1")]
    halves = [disagreed(0, reduce, 1, cast), disagreed(1, cast, 0, reduce)]
    assert said(judged(joined(*halves))) == [("mismatch", "")]


def test_a_wrapper_of_another_group_names_no_rank_of_the_job(judged: Judge) -> None:
    reduce, cast = fingerprint(5, "ALLREDUCE"), fingerprint(5, "BROADCAST")
    parts = [disagreed(8 * r, reduce, 1, cast, said=r) for r in (0, 2, 3)]
    frame = judged(joined(*parts, disagreed(8, cast, 0, reduce, said=1)))
    assert said(frame) == [("undecided", "")]
    assert "ranks of a group that is not known called different ops: job.out:" in notes(frame)


# -- deaths


def test_an_exception_before_the_timeouts_is_their_cause(judged: Judge) -> None:
    parts = [TORCH_2_7.gave_up(rank) for rank in (0, 1, 3)]
    frame = judged(joined(raised(2, "ValueError: bad sample 17"), *parts))
    assert said(frame) == [("dead", "2")]
    assert "ValueError: bad sample 17 at train.py:7" in frame.verdicts[0].headline
    assert frame.verdicts[0].evidence[0] == "job.out:6: [rank2]: ValueError: bad sample 17"
    assert fold(frame.verdicts[0].victims) == "0-1,3"


def test_of_exceptions_without_times_the_one_that_was_written_first_comes_first(
    judged: Judge,
) -> None:
    late, early = raised(0, "AttributeError: no batch"), raised(3, "KeyError: 'text'")
    assert said(judged(joined(early, late)))[0] == ("dead", "3")
    assert said(judged(joined(late, early)))[0] == ("dead", "0")
    rows = table((0, -9, "10:01:00"), (3, 1, "10:05:00"))
    frame = judged(joined(["[E1129 09:00:00.1 a.cpp:1] [rank1] will: Timeout(ms)="], early, rows))
    assert said(frame)[0] == ("dead", "0")


def test_only_ranks_without_counters_are_said_to_be_unknown(judged: Judge) -> None:
    frame = judged(
        joined(TORCH_2_7.gave_up(2), TORCH_2_7.was_asked(1, Op().number, Op().number - 1))
    )
    assert said(frame) == [("undecided", "")]
    assert "how far rank 0 came is not known" in frame.verdicts[0].headline


def test_a_log_without_times_has_none(judged: Judge) -> None:
    trace = ("Traceback (most recent call last):", '  File "a.py", line 1, in f', "KeyError: 1")
    (line,) = recorded_lines(judged(joined([f"[rank1]: {one}" for one in trace])))
    assert line.startswith("logs: ")


def test_what_the_watcher_wrote_between_the_lines_counts_for_nothing(judged: Judge) -> None:
    lines = joined(*one_late(TORCH_2_7))
    quoted = json.dumps({"at": "2026-11-29T10:11:12", "event": "hung", "beside": lines})
    with pytest.raises(Unreadable, match="no line of"):
        judged(quoted + "\n")
    assert said(judged(f"{quoted}\n{lines}")) == said(judged(lines)) == [("not_entered", "1")]


def test_a_logged_exception_is_a_note_and_no_cause(judged: Judge) -> None:
    handled = raised(2, "KeyError: 'tokenizer'", hooked=False)
    parts = [TORCH_2_7.gave_up(rank) for rank in (0, 1, 3)]
    for before in ("", "[1,2]<stderr>:", "[default2]:"):
        frame = judged(joined([before + line for line in handled], *parts))
        assert said(frame) == [("undecided", "")], before
        assert before or "KeyError: 'tokenizer'" in notes(frame)


def test_a_failed_rank_of_the_table_has_raised_what_it_wrote(judged: Judge) -> None:
    """torch before 2.3 puts nothing before a traceback: torchrun's table has the rank."""
    wrote = [f"[default2]:{line}" for line in raised(2, "ValueError: bad", hooked=False)]
    rows = table((10, 1, "10:11:12"), (9, -15, "10:11:13"), (8, -15, "10:11:13"))
    assert said(judged(joined(wrote, rows))) == [("dead", "10")]


@pytest.mark.parametrize(("code", "name"), [(-9, "SIGKILL"), (-11, "SIGSEGV"), (-7, "SIGBUS")])
def test_a_rank_that_was_killed_before_the_others_timed_out(
    judged: Judge, code: int, name: str
) -> None:
    parts = [TORCH_2_7.gave_up(rank) for rank in (0, 1, 3)]
    rows = table(
        (2, code, "10:01:12"), (0, -6, "10:11:14"), (1, -6, "10:11:14"), (3, -6, "10:11:14")
    )
    frame = judged(joined(*parts, rows))
    assert said(frame) == [("dead", "2")]
    assert name in frame.verdicts[0].headline
    assert "node07" in frame.ranks[2].host


def test_aborts_and_late_kills_follow_from_timeouts(judged: Judge) -> None:
    """Rank 3's own lines are missing: its abort says nothing; rank 2 was killed 30 s later."""
    rows = table((3, -6, "10:11:14"), (0, -6, "10:11:14"), (2, -9, "10:11:44"))
    frame = judged(joined(TORCH_2_7.gave_up(0), TORCH_2_7.gave_up(1), rows))
    assert said(frame) == [("undecided", "")]
    assert "follow from timeouts" in notes(frame)


def test_an_exit_alone_does_not_say_why(judged: Judge) -> None:
    frame = judged(joined(table((3, 1, "10:11:14"), (0, -15, "10:11:14"))))
    assert said(frame) == [("undecided", "")]
    assert "the cause is in none of these lines" in frame.verdicts[0].headline


def test_a_job_that_was_ended_from_outside_has_no_culprit(judged: Judge) -> None:
    frame = judged(joined(table((0, -15, "10:11:14"), (1, -15, "10:11:14"))))
    assert said(frame) == [("dead", "")]
    assert "were ended from outside" in frame.verdicts[0].headline


def test_a_fault_of_the_gpu_is_the_cause(judged: Judge) -> None:
    fault = TORCH_2_7.timeout(2).partition("] ")[0] + (
        "] [PG ID 0 PG GUID 0(default_pg) Rank 2] Process group watchdog thread terminated with"
        " exception: CUDA error: an illegal memory access was encountered"
    )
    frame = judged(joined([fault], *(TORCH_2_7.gave_up(rank) for rank in (0, 1, 3))))
    assert said(frame) == [("dead", "2")]


def test_closed_connections_point_to_nobody(judged: Judge) -> None:
    frame = judged(joined(*(raised(rank, CLOSED) for rank in (0, 1, 3))))
    assert said(frame) == [("undecided", "")]
    assert frame.coverage.unreachable == (2,)
    first = judged(
        joined(raised(2, "ValueError: bad"), *(raised(rank, CLOSED) for rank in (0, 1, 3)))
    )
    assert said(first) == [("dead", "2")]


def test_what_nccl_adds_to_an_exception_shows_its_nature(judged: Judge) -> None:
    lost = raised(0, NCCL)
    lost += ["[rank0]: ncclSystemError: System call failed.", "[rank0]: Last error:"]
    lost += ["[rank0]: socketProgress: Connection closed by remote peer 10.0.0.3<41234>"]
    assert said(judged(joined(lost, raised(1, CLOSED)))) == [("undecided", "")]


# -- barriers


def test_all_that_missed_a_monitored_barrier_are_named(judged: Judge) -> None:
    missed = "RuntimeError: [Rank 0]: Ranks 1, 3 failed to pass monitoredBarrier in 3000 ms"
    frame = judged(joined(raised(2, CAME), raised(0, missed)))
    assert said(frame) == [("not_entered", "1,3")]
    assert fold(frame.verdicts[0].victims) == "0,2"
    alone = judged(joined(raised(0, missed)))
    assert said(alone) == [("undecided", "")]
    assert "missed its barrier: job.out:6: " in notes(alone)
    sixteenth = joined(raised(16, CAME), raised(0, missed))
    assert said(judged(sixteenth)) == [("undecided", "")]


# -- attempts, remarks, files


def test_the_last_attempt_is_judged(judged: Judge) -> None:
    frame = judged(joined(raised(3, "ValueError: first attempt"), [RESTART], *one_late(TORCH_2_7)))
    assert said(frame) == [("not_entered", "1")]
    assert "the workers were restarted (job.out:7: " in notes(frame)


FAILED = (
    "E1129 10:12:00.1 {agent} torch/distributed/elastic/multiprocessing/api.py:1002] failed"
    " (exitcode: 1) local_rank: {local} (pid: {pid}) of binary: /usr/bin/python3"
)
"""All that torchrun writes of a restart at its usual level."""


def test_an_agent_whose_worker_fails_again_has_restarted(judged: Judge) -> None:
    first = raised(3, "ValueError: first attempt")
    again = [FAILED.format(agent=42, local=3, pid=pid) for pid in (4242, 4343)]
    frame = judged(joined(first, again[:1], raised(2, "ValueError: second"), again[1:]))
    assert said(frame) == [("dead", "2")]
    others = [FAILED.format(agent=agent, local=3, pid=4242) for agent in (42, 43)]
    once = judged(joined(first, others[:1], *map(TORCH_2_7.gave_up, (0, 1, 2)), others[1:]))
    assert said(once) == [("dead", "3")]
    assert "restarted" not in notes(once)


def test_a_rank_that_goes_on_after_it_ended_was_restarted(judged: Judge) -> None:
    first = raised(1, "ValueError: first attempt")
    failed = [FAILED.format(agent=42, local=3, pid=4242)]
    frame = judged(joined(first, failed, *one_late(TORCH_2_7, world=5)))
    assert said(frame) == [("not_entered", "1")]
    assert "the workers were restarted (job.out:7: " in notes(frame)


def test_what_hosts_wrote_is_noted_with_its_line(judged: Judge) -> None:
    frame = judged(joined(REMARKS))
    found = notes(frame)
    assert all(f"job.out:{n}: " in found for n in range(1, 6))
    assert "all is well" not in found
    assert not frame.verdicts


def test_a_desync_report_is_a_note_and_blames_nobody(judged: Judge) -> None:
    laggard = "\t     [1] finished collective #4, but didn't join collective #5 (count from 1)"
    frame = judged(joined(TORCH_2_7.gave_up(0), [laggard]))
    assert said(frame) == [("undecided", "")]
    assert "[1] finished collective #4" in notes(frame)


def test_ray_leaves_out_lines(judged: Judge) -> None:
    repeated = " [repeated 7x across cluster] (Ray deduplicates logs by default.)"
    frame = judged(joined(TORCH_2_7.gave_up(0), ["(pid=3) loading" + repeated]))
    assert "that a rank wrote none says nothing" in notes(frame)


def test_a_log_beside_dumps_is_quoted_for_their_culprit(tmp_path: Path) -> None:
    write_dumps(tmp_path, one_missing())
    (tmp_path / "slurm-1.out").write_text(joined(raised(2, "ValueError: bad sample 17")))
    frame = open_paths([tmp_path])
    assert said(frame) == [("not_entered", "2")]
    assert "slurm-1.out:6: [rank2]: ValueError: bad sample 17" in notes(frame)


def test_logs_in_folders_have_usual_names(tmp_path: Path) -> None:
    log = joined(*one_late(TORCH_2_7))
    (tmp_path / "slurm-1.out.gz").write_bytes(gzip.compress(log.encode()))
    (tmp_path / "README").write_text("nothing\n")
    assert said(open_paths([tmp_path])) == [("not_entered", "1")]


def test_a_text_without_such_lines_is_refused_with_the_next_step(tmp_path: Path) -> None:
    path = tmp_path / "train.txt"
    path.write_text("step 1\nstep 2\n")
    with pytest.raises(Unreadable, match=r"no line of .*train.txt says how a rank waited") as found:
        open_paths([path])
    assert "Watchdog caught" in found.value.next_step
    write_dumps(tmp_path, one_missing())
    frame = open_paths([tmp_path, path])
    assert said(frame) == [("not_entered", "2")]
    assert f"no line of {path} says how a rank waited or ended" in notes(frame)


def test_a_log_that_begins_with_a_bracket_is_no_dump(tmp_path: Path) -> None:
    path = tmp_path / "output"
    path.write_text(joined(*one_late(TORCH_2_7)))
    assert said(open_paths([path])) == [("not_entered", "1")]


def test_a_pipe_is_read(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log = io.TextIOWrapper(io.BytesIO(joined(*one_late(TORCH_2_7)).encode()))
    monkeypatch.setattr("sys.stdin", log)
    assert main(["diagnose", "-"]) == 3
    out = capsys.readouterr().out
    assert "rank 1 has not entered all_gather_into_tensor #21937 of default_pg in time" in out
    assert "stdin:4: [rank1]: [PG ID 8 PG GUID 0(default_pg) Rank 1] Received a dump signal" in out


def test_reports_quote_the_lines_and_escape_them(judged: Judge) -> None:
    frame = judged(joined(raised(2, "ValueError: <b>[red]x[/red] \x1b[31m"), TORCH_2_7.gave_up(0)))
    quoted = "job.out:6: [rank2]: ValueError: <b>[red]x[/red]"
    assert any(quoted in line for line in report(frame))
    assert quoted in json.dumps(document(frame))
    html = html_page(incident_of(frame, "0"))
    assert "ValueError: &lt;b&gt;[red]x[/red]" in html
    assert "\x1b" not in html + "\n".join(report(frame))


@pytest.mark.parametrize("keep", [0.3, 0.55, 0.8, 0.97])
def test_a_torn_log_names_nobody_who_is_not_late(judged: Judge, keep: float) -> None:
    log = interleaved(*one_late(TORCH_2_7, world=8))
    cut = log[: int(len(log) * keep)]
    found = judged(cut)
    assert all(culprits in ("", "1") for _, culprits in said(found))


_LINES = [
    *(line for era in ERAS for part in one_late(era) for line in part),
    *raised(2, "ValueError: bad"),
    *raised(1, CAME),
    *raised(0, "RuntimeError: [Rank 0]: Ranks 1, 3 failed to pass monitoredBarrier in 3000 ms"),
    *disagreed(1, fingerprint(5, "ALLREDUCE"), 0, fingerprint(5, "BROADCAST")),
    *table((2, -9, "10:01:12"), (0, 1, "10:11:14")),
    *REMARKS,
    RESTART,
    FAILED.format(agent=42, local=3, pid=4242),
    "Fatal Python error: Segmentation fault",
    "Thread 0x00007fdb93fddb80 (most recent call first):",
    '  File "/home/me/train.py", line 3 in step',
    "Process 4242: sglang::scheduler_TP1",
    "Python v3.11.4 (/usr/bin/python3.11)",
    'Thread 4242 (active+gil): "MainThread"',
    "    step (train.py:3)",
    "            size: 3",
    "[rank1]:[E1129 10:11:12.1 a.cpp:667] Stack trace of the failed collective: ",
    "#0 step from /home/me/train.py:3",
    "[2026-11-29 10:11:12 TP3] Scheduler hit an exception: Traceback (most recent call last):",
    "a:16:17 [0] NCCL INFO comm 0x1f rank 1 nranks 4 cudaDev 0 - Init COMPLETE",
    "a:16:17 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.3<0>",
]
_ODD = [
    "-1",
    "18446744073709551615",
    "99999999999999999999",
    "4294967296",
    "16777216",
    "",
    "(",
    "]",
]


@given(st.lists(st.sampled_from(_LINES), max_size=40), st.randoms(use_true_random=False))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_no_log_makes_it_fail(lines: list[str], chance: random.Random) -> None:
    """Any lines in any order, with numbers and brackets replaced by odd ones."""
    odd = [
        re.sub(r"\d+|[(\]]", lambda f: chance.choice([f[0]] * 6 + _ODD), line)
        if chance.random() < 0.5
        else line
        for line in lines
    ]
    reader = Reader(2026)
    reader.begin("job.out", None)
    stream = io.BytesIO("\n".join(odd).encode())
    for line in searched(stream, WORDS, reader.wants_all, seconds=SECONDS):
        reader.take(line)
    facts = reader.finish()
    if facts.some:
        frame = frame_of(facts, [Path("job.out")])
        assert report(frame)
        json.dumps(document(frame))

"""`frtop jobs`: the table, the document and the exit status."""

from __future__ import annotations

import argparse
import json
import sys
import time

import pytest
from msgspec.structs import replace

from connect.scripted_source import ScriptedSource
from frtop_probe import wire
from frtop_tui.cli import jobs as jobs_command
from frtop_tui.diagnosis.model import Frame
from frtop_tui.errors import NoAgent
from frtop_tui.job.model import Coverage, CoverageNote, HostView, JobActivity, Problem
from frtop_tui.text.jobs import WIDTH, jobs_document, jobs_lines
from json_schemas import read_document
from screens.scenes import NOW, WALL, healthy, no_agent

PLAIN = wire.Job("", 0, 4, nonce="97a2949e", name="plain.py")
OVER = wire.Job("node1", 29511, 16, "r2", 2, "b7", "a program with a very long name.py")
HOST = HostView("node0", "reporting", reported_ns=NOW)
LEFT_ALONE = "2 ranks of user alice: not looked at"


def several() -> Frame:
    """A prepared job is shown; one that nobody prepared lives, another has ended."""
    frame = healthy()
    assert frame.job is not None
    note = CoverageNote("rank 5 never reported: not started yet", "never reported")
    return replace(
        frame,
        hosts=(replace(HOST, notes=(LEFT_ALONE,)),),
        coverage=Coverage(64, 63, (5,), notes=(note,)),
        other_jobs=(PLAIN, OVER),
        running_jobs=(PLAIN,),
        activities=(
            JobActivity(frame.job, 3600, ranks=63, hosts=8),
            JobActivity(
                PLAIN, 252, 250.0, 249.0, ranks=3, unprepared=3, hosts=1,
                notes=("ranks 0-2: c10d state not readable: stripped libtorch",),
            ),
            JobActivity(OVER, 9000, ended_s=700, ranks=16, unprepared=4, hosts=2),
        ),
    )  # fmt: skip


def test_a_line_per_job_and_below_it_what_is_in_the_way() -> None:
    lines = jobs_lines(several())
    assert lines == [
        "job                          ranks  hosts  state             recorder  --job",
        "plain.py                       3/4      1  live 4m12s        no        plain.py",
        "    1 of 4 ranks never reported",
        "    ranks 0-2: c10d state not readable: stripped libtorch",
        "llama-70b                    63/64      8  live 1h00m        yes       llama-70b",
        "    rank 5 never reported: not started yet",
        "a program with a very lon..  16/16      2  ended 11m40s ago  12 of 16",
        "    --job 'a program with a very long name.py'",
        "",
        "no recorder: seen from outside (pending ops, stacks, torch's own history)",
        "plain.py waits 4m09s",
        f"node0: {LEFT_ALONE}",
    ]


def test_of_jobs_that_have_ended_the_newest_are_listed() -> None:
    frame = several()
    ended = [
        JobActivity(replace(PLAIN, nonce=f"n{age}", name=f"old{age}.py"), age, ended_s=age, ranks=1)
        for age in range(9001, 9021)
    ]
    frame = replace(
        frame,
        other_jobs=(*frame.other_jobs, *(one.job for one in ended)),
        activities=(*frame.activities, *ended),
    )
    lines = jobs_lines(frame)
    assert "13 more jobs ended before: --json has all" in lines
    listed = [line.split()[0] for line in lines if line.startswith("old")]
    assert listed == [f"old{age}.py" for age in range(9001, 9008)]
    assert len(jobs_document(frame)["jobs"]) == 23


def test_the_table_fits_80_columns_whatever_has_to_be_typed() -> None:
    long = replace(OVER, run_id="0bd165c1-a789-4c25-8cfb-b1544f0a9854", attempt=0)
    twin = replace(long, nonce="c8", run_id="1bd165c1-a789-4c25-8cfb-b1544f0a9854")
    frame = several()
    activities = tuple(JobActivity(job, 1.0, ranks=16, hosts=2) for job in (long, twin))
    frame = replace(
        frame, other_jobs=(long, twin), running_jobs=(), activities=(*frame.activities, *activities)
    )
    lines = jobs_lines(frame)
    table = lines[: lines.index("")]
    assert all(len(line) <= WIDTH for line in table)
    assert f"    --job {long.run_id}" in table


def test_the_document_has_what_programs_need() -> None:
    found = read_document(json.dumps(jobs_document(several())), "frtop-jobs-1")
    plain, shown, over = found["jobs"]
    assert plain["name"] == "plain.py"
    assert plain["call"] == "plain.py"
    assert plain["prepared"] is False
    assert plain["live"] is True
    assert (plain["ranks"], plain["world_size"], plain["hosts"]) == (3, 4, 1)
    assert plain["in_the_way"][-1].startswith("ranks 0-2: c10d state not readable")
    assert (shown["prepared"], shown["live"], shown["ended_s"]) == (True, True, None)
    assert (over["prepared"], over["live"], over["ended_s"]) == (False, False, 700)
    assert found["hosts"][0]["notes"] == [LEFT_ALONE]


def empty(*notes: str) -> Frame:
    return Frame(
        NOW, WALL, "empty", hosts=(HOST,), coverage=Coverage(notes=tuple(map(CoverageNote, notes)))
    )


def test_without_jobs_it_says_what_was_looked_for_and_the_next_step() -> None:
    lines = jobs_lines(empty("1 process has not said which rank it is"))
    assert lines[0] == "no job found on node0"
    assert lines[1].startswith("looked for: ranks with frtop's recorder, and processes")
    assert lines[2].startswith("next")
    tried = "\n".join(lines[3:7])
    assert all(one in tried for one in ("frtop run -- torchrun", "--user", "--via", "--ssh 'node["))
    assert all(len(line) <= WIDTH for line in lines[2:])
    assert lines[-1] == "1 process has not said which rank it is"

    frame = replace(empty(), hosts=(replace(HOST, searching=True),))
    first = jobs_lines(frame)[0]
    assert first == "no job found on node0 so far: the search goes on at node0; try again"


def test_who_has_a_recorder_is_not_said_before_a_rank_is_known() -> None:
    frame = replace(several(), activities=())
    (header, *rows) = jobs_lines(frame)[:3]
    assert all(row[header.index("recorder") :][:8].strip() == "" for row in rows)


def test_hosts_that_cannot_be_reached_are_listed() -> None:
    hosts = (
        HOST,
        HostView("node1", "failed", Problem("node1 refused us", "frtop key admit")),
        HostView("node2", "connecting"),
    )
    lines = jobs_lines(replace(several(), hosts=hosts))
    assert "node1: node1 refused us; frtop key admit" in lines
    assert "node2: no answer yet" in lines


def test_names_from_programs_cannot_control_the_terminal() -> None:
    frame = several()
    evil = replace(PLAIN, name="\x1b]0;x\x07")
    frame = replace(
        frame,
        other_jobs=(evil,),
        running_jobs=(evil,),
        activities=(JobActivity(evil, 1.0, ranks=4, hosts=1),),
    )
    assert "\x1b" not in "".join(jobs_lines(frame))


@pytest.mark.parametrize(("frame", "status"), [(several(), 0), (empty(), 1)])
@pytest.mark.parametrize("as_json", [True, False])
def test_the_exit_status(
    frame: Frame,
    status: int,
    as_json: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("frtop_tui.cli.live.connect", lambda options: ScriptedSource([frame]))
    for name in ("SEARCH_S", "SETTLED_S"):
        monkeypatch.setattr(jobs_command, name, 0.05)
    assert jobs_command.run(argparse.Namespace(json=as_json, wait=5.0)) == status
    printed = capsys.readouterr().out
    if as_json:
        assert bool(json.loads(printed)["jobs"]) is not bool(status)
    else:
        assert "plain.py" in printed or "no job found" in printed


@pytest.mark.parametrize(("frame", "advised"), [(several(), False), (empty(), True)])
def test_a_person_in_the_wrong_place_hears_of_it_before_the_search_ends(
    frame: Frame,
    advised: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("frtop_tui.cli.live.connect", lambda options: ScriptedSource([frame]))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    for name, seconds in (("ADVISE_S", 0.0), ("SEARCH_S", 0.2), ("SETTLED_S", 0.2)):
        monkeypatch.setattr(jobs_command, name, seconds)
    jobs_command.run(argparse.Namespace(json=False, wait=5.0, connect=["local"]))
    said = capsys.readouterr()
    assert said.err.count("frtop --user NAME") == advised
    assert "frtop --user NAME" not in said.out  # once is enough


def test_a_list_that_grows_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks that nobody prepared are found one after the other."""
    monkeypatch.setattr(jobs_command, "SEARCH_S", 0.3)
    monkeypatch.setattr(jobs_command, "SETTLED_S", 0.3)
    source = ScriptedSource([replace(several(), other_jobs=(), running_jobs=())])
    looks = 0

    def report(_: str) -> None:
        nonlocal looks
        looks += 1
        if looks == 2:
            source.give(several())

    frame = jobs_command.wait_for_jobs(source, 20.0, report)
    assert len(frame.other_jobs) == 2


def test_hosts_that_have_been_searched_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs_command, "SEARCH_S", 60.0)
    frame = replace(empty(), hosts=(replace(HOST, none_found=True),))
    assert jobs_command.wait_for_jobs(ScriptedSource([frame]), 60.0, pytest.fail) is frame


def test_a_list_of_jobs_that_ended_is_shown_as_soon_as_all_hosts_were_searched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(jobs_command, "SETTLED_S", 60.0)
    monkeypatch.setattr(jobs_command, "ENDED_S", 0.1)
    over = replace(several(), health="ended", other_jobs=(OVER,), running_jobs=())
    searched = replace(over, hosts=(replace(HOST, none_found=True),))
    source, begun = ScriptedSource([searched]), time.monotonic()
    assert jobs_command.wait_for_jobs(source, 60.0, lambda _: None) is searched
    assert time.monotonic() - begun < 30


def test_without_an_agent_it_is_an_error() -> None:
    with pytest.raises(NoAgent):
        jobs_command.wait_for_jobs(ScriptedSource([no_agent()]), 5.0, lambda _: None)

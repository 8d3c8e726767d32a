"""A real agent asks for a job's RAS: its checks run on real processes, RAS is a stand-in."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from agent.agent_host import Host, Operator
from frtop_probe import keys, wire
from frtop_probe.keys import AuthorizedKey, editing
from ras.answers import TEXT, as_json, communicator, rank
from ras.hosts import RasJob
from ras.library_file import write_library
from waiting import wait_for


def operator_of(host: Host, ranks: int) -> Operator:
    operator = host.operator(host.agent())
    wait_for(
        lambda: (
            len([one for one in operator.state().ranks if one.identity and one.groups]) == ranks
        ),
        "the agent tracks all ranks",
    )
    return operator


def keys_of(operator: Operator) -> dict[int, int]:
    """Keys by pid."""
    return {r.identity.pid: r.key for r in operator.state().ranks if r.identity is not None}


def ras(operator: Operator, key: int, *, ask: bool = True) -> wire.RasResponse:
    operator.requests_sent += 1
    response = operator.request(wire.RasRequest(operator.requests_sent, key, ask))
    assert isinstance(response, wire.RasResponse), response
    return response


def test_one_process_is_asked_once_after_a_look(job: RasJob) -> None:
    pids = job.start(2)
    operator = operator_of(job.host, 2)
    keys = keys_of(operator)
    seen = ras(operator, keys[pids[0]], ask=False)
    assert (seen.error, seen.asked, seen.report) == ("", False, None), seen.help
    assert (seen.version, seen.version_source) == ("2.28.9", "the data of its file")
    assert seen.address == f"127.0.0.1:{job.port}"
    assert (
        f"port {job.port}: 2 ranks of this job listen there, and no other process" in seen.checked
    )
    assert "stacks of 2 ranks" in seen.checked
    assert any("other hosts" in text for text in seen.unchecked)
    assert job.commands() == []  # nobody was connected to

    found = ras(operator, keys[pids[0]])
    assert (found.error, found.asked) == ("", True), found.help
    assert found.report is not None
    assert [r.pid for r in found.report.communicators[0].ranks] == pids
    assert dict(found.pids) == {keys[pid]: pid for pid in pids}
    wait_for(lambda: job.statuses() == 1, "one status was asked for")
    notes = operator.state().notes
    assert any(note.startswith("NCCL's RAS was asked at ") for note in notes)

    again = ras(operator, keys[pids[1]])
    assert (again.error, again.asked) == ("busy", False)
    assert "less than 10 s ago" in again.help
    assert ras(operator, keys[pids[1]], ask=False).error == "busy"
    time.sleep(0.1)
    assert job.statuses() == 1


def test_a_second_request_during_the_first_is_refused(job: RasJob) -> None:
    pids = job.start(1, fault="slow")
    operator = operator_of(job.host, 1)
    key = keys_of(operator)[pids[0]]
    operator.dealer.send(wire.to_frame(wire.RasRequest(900, key, True)))
    wait_for(lambda: job.statuses() == 1, "RAS was asked")
    refused = ras(operator, key)
    assert (refused.error, refused.asked) == ("busy", False)
    assert "is under way" in refused.help
    job.ranks[0].kill()  # RAS is in the rank: sooner than the deadline of eight seconds
    late = wire.decode_response(wire.from_frame(operator.dealer.recv()))
    assert isinstance(late, wire.RasResponse)
    assert (late.id, late.error, late.asked) == (900, "cut", True)


def test_a_rank_without_nccl_or_with_ras_off_is_not_asked(job: RasJob) -> None:
    without = job.start_one(library="", port=0).pid
    off = job.start_one({"NCCL_RAS_ENABLE": "0"}).pid
    older = write_library(job.folder / "old", "2.23.4")
    old = job.start_one(library=str(older)).pid
    operator = operator_of(job.host, 3)
    keys = keys_of(operator)
    said = {pid: ras(operator, keys[pid]) for pid in (without, off, old)}
    assert [said[pid].error for pid in (without, off, old)] == ["missing", "off", "missing"]
    assert "no libnccl.so mapped" in said[without].help
    assert "NCCL_RAS_ENABLE=0" in said[off].help
    assert "it came with 2.24" in said[old].help
    assert not any(one.asked for one in said.values())
    assert job.commands() == []


@pytest.mark.parametrize("function", ["new_group", "init_process_group", "ncclCommInitRank"])
def test_nobody_is_asked_while_another_rank_makes_a_communicator(
    job: RasJob, function: str
) -> None:
    job.start(1)
    job.start_one(inside=job.program_in(function))
    operator = operator_of(job.host, 2)
    found = ras(operator, keys_of(operator)[job.ranks[0].pid])
    assert (found.error, found.asked) == ("making", False)
    assert f"process {job.ranks[1].pid} may be making a communicator" in found.help
    assert function in found.help
    assert job.commands() == []


def test_a_first_op_may_make_a_communicator(job: RasJob) -> None:
    job.start(1, ops=1, inside=job.program_in("all_reduce"))
    operator = operator_of(job.host, 1)
    found = ras(operator, keys_of(operator)[job.ranks[0].pid])
    assert (found.error, found.asked) == ("making", False)
    assert "the first op of group default_pg" in found.help


def test_a_pending_call_that_makes_a_group_is_seen_in_the_ring(job: RasJob) -> None:
    pids = job.start(1)
    operator = operator_of(job.host, 1)
    key = keys_of(operator)[pids[0]]
    job.ranks[0].send_command("pseudo new_group")
    job.ranks[0].read_line()
    wait_for(lambda: operator.state().ranks[0].pending, "the agent sees the pending call")
    assert ras(operator, key).error == "making"
    job.ranks[0].send_command("over")
    job.ranks[0].read_line()
    wait_for(lambda: not operator.state().ranks[0].pending, "the call is over")
    assert ras(operator, key).error == ""


def test_another_job_on_the_port_is_a_reason_not_to_ask(
    job: RasJob, host: Host, tmp_path: Path
) -> None:
    pids = job.start(1)
    other = RasJob(host, tmp_path, "two")
    other.port = job.port
    foreign = other.start(1)
    operator = operator_of(host, 2)
    found = ras(operator, keys_of(operator)[pids[0]])
    assert (found.error, found.asked) == ("shared", False)
    assert str(foreign[0]) in found.help
    assert job.commands() == other.commands() == []


@pytest.mark.skipif(os.geteuid() != 0, reason="makes a network namespace: needs root")
def test_a_rank_in_another_network_is_not_reached_for(job: RasJob) -> None:
    pid = job.start_one(prefix=("unshare", "--net"), port=0).pid
    other = job.start_one().pid  # listens on the port, in our network
    job.answer()
    operator = operator_of(job.host, 2)
    found = ras(operator, keys_of(operator)[pid])
    assert (found.error, found.asked) == ("namespace", False)
    assert "run `frtop agent` and `frtop ras` inside its container" in found.help
    assert ras(operator, keys_of(operator)[other], ask=False).error == ""
    assert job.commands() == []


def test_an_answer_of_another_job_is_not_shown(job: RasJob) -> None:
    pids = job.start(1)
    job.answer(as_json(communicator([rank(0, 1), rank(1, 2)])))
    operator = operator_of(job.host, 1)
    found = ras(operator, keys_of(operator)[pids[0]])
    assert (found.error, found.asked, found.report) == ("other", True, None)


def test_nobody_listens_or_somebody_else(job: RasJob, host: Host, tmp_path: Path) -> None:
    silent = job.start(1, port=0)
    operator = operator_of(host, 1)
    key = keys_of(operator)[silent[0]]
    found = ras(operator, key)
    assert (found.error, found.asked) == ("closed", False)
    assert f"nobody listens on port {job.port}" in found.help
    other = RasJob(host, tmp_path, "two")
    other.port = job.port
    other.start(1)
    found = ras(operator, key)
    assert (found.error, found.asked) == ("closed", False)
    assert "is not this job's" in found.help
    assert other.commands() == []


def test_an_older_nccl_answers_as_text(job: RasJob) -> None:
    job.library = job.library.rename(job.folder / "libnccl.so.2.27.3")
    pids = job.start(1, json=False)
    job.answer(TEXT.encode(), "text")
    operator = operator_of(job.host, 1)
    found = ras(operator, keys_of(operator)[pids[0]])
    assert found.report is not None, found.help
    assert (found.version, found.report.form) == ("2.27.3", "text")


def test_a_stopped_job_is_asked_for_no_longer_than_seconds(job: RasJob) -> None:
    pids = job.start(1)
    operator = operator_of(job.host, 1)
    key = keys_of(operator)[pids[0]]
    os.kill(pids[0], signal.SIGSTOP)
    begin = time.monotonic()
    found = ras(operator, key)
    assert (found.error, found.asked) == ("deadline", False)
    assert "not greeted" in found.help
    assert time.monotonic() - begin < 15
    os.kill(pids[0], signal.SIGKILL)
    wait_for(lambda: ras(operator, key).error == "gone", "its end is known")
    assert "has ended" in ras(operator, key).help


def test_a_reader_may_not_even_look(
    job: RasJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = keys.load(create=False)
    monkeypatch.setenv("FRTOP_KEY_FILE", str(tmp_path / "colleague"))
    colleague = keys.load(create=True)
    monkeypatch.setenv("FRTOP_KEY_FILE", str(job.host.key_file))
    editing.admit(owner, AuthorizedKey(colleague.public, "read", "colleague"))
    job.start(1)
    reader = Operator(job.host.agent(), colleague)
    job.host.operators.append(reader)
    known = wait_for(lambda: reader.state().ranks, "the agent tracks the rank")
    for ask in (False, True):
        refused = reader.request(wire.RasRequest(70 + ask, known[0].key, ask))
        assert isinstance(refused, wire.Error)
        assert refused.reason == "permission"
    assert job.commands() == []

"""Many hosts in one report: what is alike is said once, and who differs is set apart."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from features.doctor.sample_facts import HOST, RANK, SHM, SPY, THEIRS, TORCH
from frtop_probe.features.doctor.examination import examine
from frtop_probe.features.doctor.facts import (
    HostFacts,
    RankFacts,
    SearchFacts,
    TorchFiles,
    Trial,
    document,
)
from frtop_probe.proc.memory import NO_RIGHT
from frtop_probe.proc.ptrace_refusal import Change
from frtop_probe.ring import layout
from frtop_tui.cli.parser import parse
from frtop_tui.connect.pipes.framing import PipeError
from frtop_tui.features.doctor.examinations import MAX_BYTES, MAX_ITEMS, MAX_TEXT, read_facts
from frtop_tui.features.doctor.host_words import (
    DoctorRound,
    ExaminedHost,
    grouped,
    round_document,
    round_lines,
    typed_from_afar,
)
from frtop_tui.features.doctor.words import WIDTH
from frtop_tui.job.model import Problem
from json_schemas import read_document

THERE = replace(HOST, by_shell=True)
REFUSED = replace(RANK, memory=NO_RIGHT, c10d=NO_RIGHT, groups=0, rings=())


def host(number: int, *ranks: RankFacts, facts: HostFacts = THERE) -> ExaminedHost:
    found = examine(replace(facts, name=f"n{number}"), SearchFacts(ranks, job="train.py"))
    return ExaminedHost(f"node{number}", found)


def text(*hosts: ExaminedHost, **failed: Problem) -> str:
    lines = round_lines(DoctorRound(hosts, failed))
    assert all(len(line) <= WIDTH for line in lines if "    " not in line.strip())
    return "\n".join(lines)


def test_hosts_with_the_same_answer_are_one_paragraph() -> None:
    ranks = [replace(RANK, pid=100 + number, rank=number) for number in range(8)]
    said = text(*(host(number, rank) for number, rank in enumerate(ranks)))
    assert said.startswith("node[0-7]: uid 1000, Python 3.11.7; beside 8 ranks of train.py, torch")
    assert said.count("c10d state") == 1
    assert said.endswith(
        "nothing is closed that costs evidence; not tried: ops on devices (exit status 0)"
    )


def test_numbers_that_differ_are_ranges() -> None:
    small = replace(THERE, shared_memory=replace(SHM, free=SHM.free // 2))
    said = text(host(0, RANK), host(1, replace(RANK, rank=1), facts=small))
    most = SHM.free // layout.FULL.size
    assert f"/dev/shm has room for the rings of {most // 2} to {most} ranks" in said


def test_of_a_host_that_differs_only_what_differs_is_said() -> None:
    old = replace(RANK, torch=replace(TORCH, version="2.7.0"), c10d="no", groups=0, rings=())
    said = text(host(0, RANK), host(1, RANK), host(2, old))
    rest = said[said.index("node2: ") :]
    assert "torch 2.7.0; else as node[0-1]; what differs:" in " ".join(rest.split())
    assert "c10d state       closed" in rest
    assert "/dev/shm" not in rest
    assert "closed, and costs evidence, on node2: c10d state" in " ".join(rest.split())


def test_a_line_with_a_pid_is_said_for_its_host() -> None:
    stopped = [
        replace(RANK, pid=70 + n, rank=n, rights=replace(THEIRS, pid=70 + n, state="T"))
        for n in range(6)
    ]
    said = text(*(host(number, rank) for number, rank in enumerate(stopped)))
    assert "kill -CONT 70    # on node0" in said
    assert "kill -CONT 73    # on node3; 2 more: --json" in said
    assert "kill -CONT 74" not in said
    assert "(ranks 0-5)" in said


def test_a_reason_with_a_pid_is_that_of_one_host() -> None:
    setuid = [
        replace(REFUSED, pid=70 + n, rights=replace(THEIRS, pid=70 + n, owner=0)) for n in range(2)
    ]
    said = " ".join(text(*(host(number, rank) for number, rank in enumerate(setuid))).split())
    assert "why node0: process 70 cannot be traced (dumpable=0" in said
    assert "alike on the others" in said


def test_hosts_that_are_not_reached_are_said_with_their_reason() -> None:
    why = {name: Problem(f"{name}: no answer", f"ssh {name}") for name in ("node8", "node9")}
    found = DoctorRound((host(0, RANK),), why, {"n0": "node0"})
    said = "\n".join(round_lines(found))
    assert "node[8-9]: not examined\n  why   no answer\n  next  ssh node8\n" in said
    assert "not examined: node[8-9] (exit status 1)" in said
    assert "n0 is node0 by another name" in said
    as_json = read_document(json.dumps(round_document(found)), "frtop-doctor-hosts-1")
    assert as_json["exit_status"] == found.exit_status == 1
    assert as_json["hosts"]["node9"]["error"] == {"text": "node9: no answer", "next": "ssh node9"}
    assert as_json["hosts"]["n0"]["same_as"] == "node0"
    assert as_json["hosts"]["node0"]["host"]["by_shell"] is True


@pytest.mark.parametrize(
    ("line", "typed"),
    [
        ("sudo -u '#5' frtop",
         "frtop --ssh HOST --via 'ssh {host} \"sudo -n -u \\\\#5 sh\"'"),
        ("frtop --user ann", "frtop --user ann --ssh HOST"),
        ("frtop doctor    # on the host", "frtop doctor --ssh HOST    # on the host"),
        ("docker exec -it CONTAINER frtop    # at once",
         "frtop --ssh HOST --via 'ssh {host} \"docker exec -i CONTAINER sh\"'    # at once"),
        ("sudo sysctl kernel.yama.ptrace_scope=0", "sudo sysctl kernel.yama.ptrace_scope=0"),
    ],
)  # fmt: skip
def test_lines_that_start_frtop_there_start_it_here(line: str, typed: str) -> None:
    assert typed_from_afar(Change("type", line)) == Change("type", typed)


def test_the_same_machine_with_another_torch_is_another_group() -> None:
    other = replace(RANK, torch=replace(TORCH, version="2.12.0"))
    assert [len(group.hosts) for group in grouped([host(0, RANK), host(1, other)])] == [1, 1]


def far(host: HostFacts = THERE, *ranks: RankFacts) -> bytes:
    return json.dumps(document(host, SearchFacts(ranks))).encode()


def test_facts_cross_the_pipe_as_they_are() -> None:
    found = read_facts(far(THERE, RANK))
    assert (found.host, found.search) == (THERE, SearchFacts((RANK,)))


def test_what_another_host_says_is_cut_and_without_control_sequences() -> None:
    torch = TorchFiles("2" * 9999)
    many = replace(THERE, name="\x1b]0;x\x07", job_torch=torch, python="3\n4")
    found = read_facts(far(many, *[RANK] * 500))
    assert "\x1b" not in found.host.name
    assert found.host.python == "3 4"
    assert found.host.job_torch is not None
    assert len(found.host.job_torch.version) == MAX_TEXT
    assert len(found.search.ranks) == MAX_ITEMS


@pytest.mark.parametrize("bad", ["/x'; rm -rf ~; '", "/x; rm -rf ~"])
def test_no_text_of_another_host_gets_out_of_its_quotes(bad: str) -> None:
    """People copy the lines that open a tier."""
    torch = TorchFiles(f"2.13.0{bad}", bad, exports=False, locals=False)
    shm = replace(SHM, path=bad, exists=False)
    evil = replace(
        THERE, name=bad, program=bad, job_python=bad, job_torch=torch, shared_memory=shm,
        folder_problem=f"{bad} is open to other users; chmod 700 {bad}, or set FRTOP_DIR",
        temporary=replace(shm, noexec=True), memory_file=Trial("refused"),
        tools=(replace(SPY, path=bad, mount=bad, noexec=True),),
    )  # fmt: skip
    own = replace(THEIRS, owner=0)
    hidden = replace(REFUSED, rights=own, program=bad, program_flaw="capabilities", torch=torch)
    for facts in (evil, replace(evil, shared_memory=replace(shm, exists=True, writable=False))):
        for by_shell in (True, False):
            found = host(0, hidden, facts=replace(facts, by_shell=by_shell)).found
            before = host(0, facts=replace(facts, by_shell=by_shell)).found
            lines = [
                change.line.partition("    #")[0]
                for tier in (*found.tiers, *before.tiers)
                for obstacle in tier.obstacles
                for change in obstacle.changes
                if change.where == "type"
            ]
            assert sum("rm -rf" in line for line in lines) > 3, lines
            for line in lines:
                words = list(shlex.shlex(line, posix=True, punctuation_chars=True))
                assert "rm" not in words, line


@pytest.mark.parametrize(
    "said",
    [
        b"", b"[]", b"{}", b"\xff", b"[" * 100_000, b" " * (MAX_BYTES + 1),
        far().replace(b'"uid": 1000', b'"uid": "root"'),
        far().replace(b'"tools": [', b'"tools": [7, '),
        far(replace(THERE, ptrace=Trial("ok"))).replace(b'"ok"', b'"fine"'),
        b'{"host": ' + b'{"a":' * 500 + b"1" + b"}" * 501,
    ],
)  # fmt: skip
def test_what_is_no_facts_is_refused(said: bytes) -> None:
    with pytest.raises(PipeError):
        read_facts(said)


def test_hosts_of_the_configuration_file_are_not_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "config.toml"
    file.write_text('connect = ["node[0-7]"]\n')
    file.chmod(0o600)
    monkeypatch.setenv("FRTOP_CONFIG", str(file))
    monkeypatch.delenv("FRTOP_SSH", raising=False)
    options = parse(["doctor"])
    assert not hasattr(options, "connect")
    assert options.ssh == []

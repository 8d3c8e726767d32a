"""`frtop ras` as a person types it: real ranks and a real agent, a stand-in for RAS."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
import time

import pytest

from ras.answers import as_json, communicator, rank
from ras.hosts import RasJob
from waiting import DEADLINE_S, wait_for


@pytest.fixture
def job(job: RasJob) -> RasJob:
    job.start(2)
    job.host.agent()
    return job


QUICK = """
import sys
from frtop_tui.__main__ import run
from frtop_tui.cli import ras
ras.APPEAR_S = 2.0
sys.exit(run())
"""
"""`frtop` that waits two seconds for a rank that is not heard."""


def frtop(
    job: RasJob, *arguments: str, program: tuple[str, str] = ("-m", "frtop_tui")
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *program, "ras", *arguments],
        env=job.host.environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )


def in_terminal(job: RasJob, typed: str) -> tuple[int, str]:
    """Runs `frtop ras` in a terminal, and types when it asks; returns status and output."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "frtop_tui", "ras"],
        env={**job.host.environment, "TERM": "xterm"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    said, sent, end = b"", False, time.monotonic() + 2 * DEADLINE_S
    try:
        while time.monotonic() < end:
            if not select.select([ours], [], [], 0.1)[0]:
                continue
            try:
                said += os.read(ours, 65536)
            except OSError:  # it has ended
                break
            if b"[y/N]" in said and not sent:
                assert b"RISK" in said
                assert b"nccl#1762" in said
                assert job.commands() == []
                os.write(ours, typed.encode())
                sent = True
        return process.wait(timeout=DEADLINE_S), said.decode()
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def test_nothing_is_asked_without_a_yes(job: RasJob) -> None:
    done = frtop(job)
    assert done.returncode == 2
    assert "RISK" in done.stderr
    assert "NCCL 2.28.9 (the data of its file)" in done.stderr
    assert "then add --yes" in done.stderr
    assert done.stdout == ""
    status, said = in_terminal(job, "n\n")
    assert status == 1
    assert "RAS was not asked." in said
    status, said = in_terminal(job, "\n")
    assert status == 1
    assert job.commands() == []


def test_a_person_in_a_terminal_says_yes(job: RasJob) -> None:
    status, said = in_terminal(job, "y\n")
    assert status == 0, said
    assert "communicator 0xae94423cfbb2ef4a, 2 ranks: process group default_pg" in said
    assert "rank 1: 8,811 (1 fewer)" in said
    wait_for(lambda: job.statuses() == 1, "it was asked once")


def test_json_is_a_document_and_the_risk_is_beside_it(job: RasJob) -> None:
    done = frtop(job, "--yes", "--json", "--rank", "1")
    assert done.returncode == 0, done.stderr
    assert "RISK" in done.stderr
    found = json.loads(done.stdout)
    assert found["rank"] == 1
    assert found["nccl"]["version"] == "2.28.9"
    assert "nccl#1762" in found["nccl"]["faults"]
    assert found["communicators"][0]["ranks"] == [0, 1]
    assert found["communicators"][0]["groups"] == ["default_pg"]
    assert found["communicators"][0]["counts"]["AllReduce"] == {"most": 8812, "fewer": {"1": 8811}}
    assert found["report"]["communicators"][0]["ranks"][0]["pid"] == job.ranks[0].pid
    wait_for(lambda: job.statuses() == 1, "it was asked once")


@pytest.mark.long
def test_twice_says_what_has_not_moved(job: RasJob) -> None:
    pids = [one.pid for one in job.ranks]
    process = subprocess.Popen(
        [sys.executable, "-m", "frtop_tui", "ras", "--yes", "--twice"],
        env=job.host.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for(lambda: job.statuses() == 1, "the first question")
    job.answer(as_json(communicator([rank(0, pids[0], 8813), rank(1, pids[1], 8811)])))
    said, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert "twice, some seconds apart" in errors
    assert "not moved: rank 1" in said
    assert "  moved: rank 0" in said
    wait_for(lambda: job.statuses() == 2, "it was asked twice")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--read-only", "--yes"), "started with --read-only"),
        (("--rank", "7", "--yes"), "rank 7 is not heard"),
    ],
)
def test_a_refusal_has_a_next_step(job: RasJob, arguments: tuple[str, ...], words: str) -> None:
    done = frtop(job, *arguments, program=("-c", QUICK))
    assert done.returncode == 1
    assert words in done.stderr
    assert "next: " in done.stderr
    assert job.commands() == []

"""`frtop numbers`, `record` and `tensors --members` as a person types them, on real jobs."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from e2e.conftest import Launch, frtop, wait_for_ranks
from frtop_tui.files.capture import author
from json_schemas import read_document
from waiting import wait_for


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "frtop_tui", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


@pytest.mark.long
def test_faults_in_numbers_are_named(
    home: Path, torchrun: Launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FRTOP_MODULES", "1")
    job = torchrun("odd_numbers.py", str(tmp_path), ranks=3)
    wait_for_ranks(home, 3)
    noted = frtop("recorder", "--note", "before the faults")
    assert noted.returncode == 0, noted.stdout + noted.stderr
    assert "noted on ranks 0-2: before the faults" in noted.stdout

    unasked = frtop("numbers")
    assert unasked.returncode == 2
    assert "the training thread waits for a copy" in unasked.stderr
    healthy = frtop("numbers", "--ops", "20", "--steps", "5", "--yes", "--by", "group")
    assert healthy.returncode == 0, healthy.stdout + healthy.stderr
    assert "equal bit by bit" in healthy.stdout
    assert "default_pg    all_reduce input, float32, ranks 0-2: " in healthy.stdout
    assert "optimizer 0   gradients, float32, ranks 0-2: " in healthy.stdout

    switched = frtop("recorder", "--sites", "off")
    assert "call sites  off: ops name no line" in switched.stdout, switched.stderr
    assert "call sites  on: up to 0.9 us an op" in frtop("recorder", "--sites", "on").stdout

    before = sampled()
    watch = start("numbers", "--ops", "100000", "--first", "--yes")
    # They begin in a step ahead.
    wait_for(
        lambda: all(now > then for now, then in zip(sampled(), before, strict=True)), "samples"
    )
    (tmp_path / "nan").touch()
    said, _ = watch.communicate(timeout=90)
    assert watch.returncode == 3, said
    assert "rank 1: 68 NaN in its input of all_reduce" in said
    what = r"default_pg \(backward, DDP bucket 0: the model\), step \d+ odd_numbers.py:\d+"
    assert re.search(f"{what}; the first one is in the gradient of bias; none in", said), said
    assert "none in that of ranks 0,2" in said

    (tmp_path / "parameter").touch()
    found = frtop("numbers", "--ops", "0", "--steps", "20", "--yes", "--json")
    assert found.returncode == 3, found.stdout + found.stderr
    step = json.loads(found.stdout)["findings"]["steps"][0]
    assert (step["role"], step["odd"]) == ("parameter", [2])
    assert step["names"] == ["module.weight (float32, 64 values)"]

    diagnosed = json.loads(frtop("diagnose", "--json").stdout)
    notes = diagnosed["ranks"]["1"]["notes"]
    assert "operator: before the faults" in notes
    assert any("NaN in the input of all_reduce" in note for note in notes)
    (tmp_path / "end").touch()
    output, _ = job.communicate(timeout=60)
    assert job.returncode == 0, output


@pytest.mark.long
def test_a_watch_ends_with_ctrl_c_with_another_operators_or_with_the_job(
    home: Path, torchrun: Launch, tmp_path: Path
) -> None:
    torchrun("odd_numbers.py", str(tmp_path), ranks=3)
    wait_for_ranks(home, 3)
    nothing = frtop("numbers", "--stop")
    assert (nothing.returncode, "nothing to stop" in nothing.stdout) == (0, True)

    first = sampling()
    second = start("numbers", "--ops", "100000", "--yes")
    said, _ = first.communicate(timeout=30)
    assert first.returncode == 1
    assert f"ranks 0-2: its sampling was replaced by one for {operator(second)}" in said
    wait_for(lambda: all(states("on")), "all sample")
    second.send_signal(signal.SIGINT)
    said, noted = second.communicate(timeout=30)
    assert second.returncode == 1
    assert "ranks 0-2 sample already, for" in noted
    assert "until Ctrl-C" in said
    assert not any(states("on"))

    third = sampling()
    stopped = frtop("numbers", "--stop")
    assert f"ranks 0-2: stopped what was sampled for {operator(third)}" in stopped.stdout
    said, _ = third.communicate(timeout=30)
    assert (third.returncode, "its sampling was ended by" in said) == (1, True)

    fourth = sampling()
    os.kill(json.loads(frtop("diagnose", "--json").stdout)["ranks"]["1"]["pid"], signal.SIGKILL)
    said, _ = fourth.communicate(timeout=30)
    assert fourth.returncode == 1
    assert "rank 1: ended by signal 9" in said


def operator(process: subprocess.Popen[str]) -> str:
    return f"{author()} PID {process.pid}"


def sampling() -> subprocess.Popen[str]:
    """A command whose watch all ranks have begun."""
    process = start("numbers", "--ops", "100000", "--yes")
    wait_for(lambda: all(by == operator(process) for by in states("by")), "all sample")
    return process


def states(field: str) -> list[Any]:
    """A field of what each rank says of its watch."""
    found = read_document(frtop("recorder", "--json").stdout, "frtop-recorder-1")["ranks"]
    return [found[rank]["recorded"]["settings"]["numbers"][field] for rank in sorted(found)]


def sampled() -> list[int]:
    """How many samples each rank has taken since it started."""
    return states("samples")


@pytest.mark.long
def test_members_of_a_pending_op_are_compared(home: Path, torchrun: Launch, tmp_path: Path) -> None:
    torchrun("told_to_hang.py", str(tmp_path), "1", ranks=3)
    wait_for_ranks(home, 3)
    os.mkfifo(tmp_path / "shard")
    (tmp_path / "hang").touch()

    def compared() -> str:
        said = frtop("tensors", "--rank", "0", "--members")
        return said.stdout if "not pending on rank 1" in said.stdout else ""

    said = wait_for(compared, "rank 1 is missing")
    assert "2 of 3 answered; not pending on rank 1" in said
    assert "float32[1000] on all" in said

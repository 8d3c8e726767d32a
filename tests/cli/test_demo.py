"""The demo's right verdicts, with the recorder and without."""

from __future__ import annotations

import fcntl
import importlib.util
import os
import struct
import sys
import termios

import pytest

from frtop_tui.cli import demo as demo_command
from frtop_tui.demo.faults import CULPRIT, FAULTS
from frtop_tui.demo.job import DemoJob
from frtop_tui.diagnosis.causes import Cause
from frtop_tui.diagnosis.model import Verdict, VerdictKind, Why
from frtop_tui.errors import Missing


def verdict(kind: VerdictKind, cause: Cause, *culprits: int) -> Verdict:
    return Verdict(kind, "confirmed", "none", culprits, "it", Why.of(cause), "look")


def test_an_exception_cannot_be_told_from_an_abort_from_outside() -> None:
    fault = FAULTS["exception"]
    died = (verdict("dead", "exception", CULPRIT),)
    undecided = (verdict("undecided", "exit_status"),)
    assert fault.explained_by(died)
    assert not fault.explained_by(undecided)
    assert fault.explained_by(undecided, prepared=False)
    assert not fault.explained_by((verdict("dead", "exit_status", 0),), prepared=False)


def test_of_other_faults_the_right_verdict_is_the_same_from_outside() -> None:
    fault = FAULTS["sleep"]
    right = (verdict("not_entered", "sleeping", CULPRIT),)
    assert fault.explained_by(right, prepared=False)
    assert not fault.explained_by((verdict("undecided", "unknown"),), prepared=False)


@pytest.mark.parametrize("absent", ["torch", "psutil"])
def test_what_only_the_demo_needs_is_named_with_what_installs_it(
    monkeypatch: pytest.MonkeyPatch, absent: str
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == absent else name)
    with pytest.raises(Missing) as raised:
        DemoJob(FAULTS["sleep"])
    assert raised.value.next_step == "pip install 'frtop[demo]'"


@pytest.mark.torch
def test_a_demo_without_the_recorder_has_nothing_of_frtop_in_its_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FRTOP_RECORD", "/somewhere")
    plain, prepared = DemoJob(FAULTS["sleep"], prepared=False), DemoJob(FAULTS["sleep"])
    try:
        assert not [name for name in plain._job_environment() if "FRTOP" in name]
        assert prepared._job_environment()["FRTOP_DIR"] == str(prepared.rings)
    finally:
        plain.stop()
        prepared.stop()
    assert not plain.folder.exists()


def test_a_long_line_breaks_between_words_in_a_terminal_only(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    line = "starting a small DDP training on 4 ranks, without the recorder; fault: " + "rank 2 " * 3
    reader, terminal = os.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    with os.fdopen(terminal, "w") as stderr, monkeypatch.context() as patched:
        patched.setattr(sys, "stderr", stderr)
        demo_command._print(line)
        shown = os.read(reader, 4096).decode().splitlines()
    os.close(reader)
    assert shown[0].endswith("without the recorder; fault:")
    assert shown[1] == "      rank 2 rank 2 rank 2"
    demo_command._print(line)
    assert capfd.readouterr().err.splitlines() == [f"demo: {line}"]

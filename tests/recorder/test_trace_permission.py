"""A rank lets its host's agent read it, where Yama leaves that to the rank, and nobody else."""

from __future__ import annotations

import errno
import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from frtop_probe.recorder.process import trace_permission
from frtop_probe.ring.folder import AgentFiles

AGENT = 4711


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """What is asked of the kernel, which has Yama with scope 1."""
    found: list[tuple[int, int]] = []

    def prctl(option: int, value: int) -> int:
        found.append((option, value))
        return 0

    monkeypatch.setattr(trace_permission, "_prctl", prctl)
    monkeypatch.setattr(trace_permission, "SCOPE", tmp_path / "scope")
    monkeypatch.delenv(trace_permission.SWITCH, raising=False)
    (tmp_path / "scope").write_text("1\n")
    return found


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[AgentFiles]:
    """An agent that holds its lock and has its card."""
    files = AgentFiles.here(tmp_path)
    files.card.write_text(json.dumps({"pid": AGENT}))
    with files.lock.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield files


def test_the_agent_is_named(
    tmp_path: Path, calls: list[tuple[int, int]], agent: AgentFiles
) -> None:
    assert trace_permission.allow(tmp_path, AGENT) == ""
    assert calls == [(0x59616D61, AGENT)]
    agent.card.write_text(json.dumps({"pid": AGENT + 1}))  # another one has taken over
    assert trace_permission.allow(tmp_path, AGENT + 1) == ""
    assert calls[1:] == [(0x59616D61, AGENT + 1)]


NOT_THE_AGENT = "not the agent"


@pytest.mark.parametrize(
    ("case", "why"),
    [
        *(({"scope": scope}, "ptrace_scope is") for scope in ("0\n", "2\n", "3\n", "", "11")),
        ({"scope": None}, "missing"),  # no Yama
        *(({"peer": peer}, NOT_THE_AGENT)
          for peer in (AGENT + 1, 0, -1, 1, None, str(AGENT), float(AGENT))),
        *(({"card": card}, NOT_THE_AGENT)
          for card in ("", "[]", "{}", '{"pid": "4711"}', '{"pid": null}', "[" * 9999)),
    ],
)  # fmt: skip
def test_nobody_else_is_named(
    tmp_path: Path, calls: list[tuple[int, int]], agent: AgentFiles, case: dict[str, Any], why: str
) -> None:
    if "scope" in case:
        (tmp_path / "scope").unlink()
        if case["scope"] is not None:
            (tmp_path / "scope").write_text(case["scope"])
    if "card" in case:
        agent.card.write_text(case["card"])
    assert why in trace_permission.allow(tmp_path, case.get("peer", AGENT))
    assert calls == []


@pytest.mark.usefixtures("agent")
def test_it_can_be_switched_off(
    tmp_path: Path, calls: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FRTOP_PTRACER", "0")
    assert "FRTOP_PTRACER=0" in trace_permission.allow(tmp_path, AGENT)
    assert calls == []


def test_an_agent_that_has_ended_is_not_named(tmp_path: Path, calls: list[tuple[int, int]]) -> None:
    files = AgentFiles.here(tmp_path)
    files.card.write_text(json.dumps({"pid": AGENT}))
    files.lock.touch()
    assert NOT_THE_AGENT in trace_permission.allow(tmp_path, AGENT)
    assert calls == []


@pytest.mark.usefixtures("calls", "agent")
def test_what_the_kernel_says_is_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_permission, "_prctl", lambda *_: errno.EINVAL)
    answer = trace_permission.respond(tmp_path, {"ask": "trace", "peer": AGENT})
    why = "the kernel refused it: Invalid argument"
    assert answer == ({"error": "failed", "help": why}, b"")


def test_the_kernel_is_called() -> None:
    """Without Yama it knows no such option."""
    has_yama = trace_permission.SCOPE.exists()
    number = trace_permission._prctl(trace_permission._PR_SET_PTRACER, os.getpid())
    trace_permission._prctl(trace_permission._PR_SET_PTRACER, 0)
    assert number == (0 if has_yama else errno.EINVAL)

"""Agents for one test: each has its own folder, and ends with the test."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from frtop_probe import keys
from frtop_probe.agent import announcement
from frtop_tui.connect.live import LiveSource
from frtop_tui.diagnosis.model import Frame
from waiting import wait_for

Start = Callable[..., announcement.Announcement]


def frame_with(source: LiveSource, wanted: Callable[[Frame], object]) -> Frame:
    """Returns the first frame of `source` that `wanted` accepts."""
    return wait_for(
        lambda: frame if wanted(frame := source.frame()) else None,
        lambda: f"such a frame; the newest is {source.frame()}",
    )


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Creates an FRTOP_DIR and names a key file, both for one test."""
    folder = tmp_path / "frtop"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("FRTOP_DIR", str(folder))
    monkeypatch.setenv("FRTOP_KEY_FILE", str(tmp_path / "key"))
    monkeypatch.setenv("FRTOP_BIND", "127.0.0.1")
    monkeypatch.setenv("FRTOP_AGENT_WITH", str(os.getpid()))
    return folder


@pytest.fixture
def start_agent(folder: Path) -> Iterator[Start]:
    """Starts an agent in `folder`; returns its announcement."""
    started: list[subprocess.Popen[bytes]] = []

    def start() -> announcement.Announcement:
        keys.load(create=True)  # only the agent beside a rank 0 makes one
        started.append(subprocess.Popen([sys.executable, "-m", "frtop_probe.agent"]))
        return wait_for(lambda: announcement.find_agent(folder), "the agent announces itself")

    yield start
    for process in started:
        process.terminate()
        process.wait(60)

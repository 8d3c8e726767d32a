"""Agents for a test, each in its own folder, which end with it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from frtop_probe import keys
from frtop_probe.agent import announcement

Start = Callable[..., announcement.Announcement]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An FRTOP_DIR and a key file that nobody else uses."""
    folder = tmp_path / "frtop"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("FRTOP_DIR", str(folder))
    monkeypatch.setenv("FRTOP_KEY_FILE", str(tmp_path / "key"))
    monkeypatch.setenv("FRTOP_BIND", "127.0.0.1")
    monkeypatch.setenv("FRTOP_AGENT_WITH", str(os.getpid()))
    return folder


@pytest.fixture
def start_agent(folder: Path) -> Iterator[Start]:
    """Starts an agent in `folder` or another one; gives its announcement."""
    started: list[subprocess.Popen[bytes]] = []

    def start(where: Path = folder) -> announcement.Announcement:
        keys.load(create=True)  # only the agent beside a rank 0 makes one
        started.append(subprocess.Popen([sys.executable, "-m", "frtop_probe.agent"]))
        end = time.monotonic() + 20
        while (here := announcement.find_agent(where)) is None:
            assert time.monotonic() < end, "no agent announced itself"
            time.sleep(0.02)
        return here

    yield start
    for process in started:
        process.terminate()
        process.wait(10)

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.agent_host import Host
from ras.hosts import RasJob


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    one = Host(tmp_path, monkeypatch)
    yield one
    one.close()


@pytest.fixture
def job(host: Host, tmp_path: Path) -> RasJob:
    """A job without ranks yet."""
    return RasJob(host, tmp_path)

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.agent_host import Host


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    host = Host(tmp_path, monkeypatch)
    yield host
    host.close()

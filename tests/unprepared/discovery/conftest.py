"""Processes of a test end with it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from unprepared.discovery.programs import Programs


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Programs]:
    programs = Programs(tmp_path)
    yield programs
    programs.close()

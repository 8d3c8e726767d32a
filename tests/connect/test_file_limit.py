"""Room for the files of all sources of a process."""

from __future__ import annotations

import resource
from contextlib import ExitStack

import pytest

from frtop_tui.connect.live import FILES_PER_HOST, FILES_PER_SOURCE, SPARE_FILES, FileLimit


def test_many_sources_count_together_and_the_hard_limit_holds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [1024, 4096]
    monkeypatch.setattr(resource, "getrlimit", lambda _: tuple(now))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: now.__setitem__(0, limits[0]))
    limit = FileLimit()
    with limit.room_for(16):
        assert now[0] == 1024
        with ExitStack() as stack:
            for _ in range(31):
                stack.enter_context(limit.room_for(16))
            assert now[0] == SPARE_FILES + 32 * (FILES_PER_SOURCE + 16 * FILES_PER_HOST)
            with limit.room_for(10_000):
                assert now[0] == 4096
    with limit.room_for(1):
        assert limit._wanted == SPARE_FILES + FILES_PER_SOURCE + FILES_PER_HOST

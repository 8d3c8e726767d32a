"""Outcomes of commands are shown with the job they are about."""

from __future__ import annotations

from pathlib import Path

from msgspec import structs

from frtop_tui.job.state import JobState
from frtop_tui.sources.commands import Commands
from frtop_tui.sources.request_tracker import RequestTracker
from sources.fakes import JOB, FakeConnections, frame_of, rank_view


def test_a_file_of_the_former_job_is_not_shown_with_the_next() -> None:
    commands = Commands(RequestTracker(FakeConnections().send), JobState())
    first = frame_of(rank_view(0, "a"))
    other = frame_of(rank_view(0, "a"), job=structs.replace(JOB, nonce="another"))
    commands.update(first, 1)
    commands.save(first, 9, 1, Path("x"), now=1)  # there is no such rank: it is over at once
    commands.update(first, 2)
    assert [writing.state for writing in commands.writings] == ["failed"]
    commands.update(other, 3)
    assert commands.writings == ()
    commands.close(4)

"""Files that were asked for are told with the job they are of."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

from msgspec import structs

from frtop_tui.job.state import JobState
from frtop_tui.sources.asking import Asking
from frtop_tui.sources.wishes import Wishes
from sources.seam import JOB, frame_of, rank_view


def test_a_file_of_the_job_shown_before_is_not_told_with_the_next() -> None:
    wishes = Wishes(cast("Asking", SimpleNamespace(errands=None)), JobState())
    first = frame_of(rank_view(0, "a"))
    other = frame_of(rank_view(0, "a"), job=structs.replace(JOB, nonce="another"))
    wishes.turn(first, 1)
    wishes.save(first, 9, 1, Path("x"), now=1)  # there is no such rank: it is over at once
    wishes.turn(first, 2)
    assert [writing.state for writing in wishes.writings] == ["failed"]
    wishes.turn(other, 3)
    assert wishes.writings == ()
    wishes.close(4)

"""A file of tensors is shown with the job that it is of."""

from __future__ import annotations

from pathlib import Path

from msgspec import structs

from connect.fakes import JOB, FakeConnections, frame_of, rank_view
from frtop_tui.connect.request_tracker import RequestTracker
from frtop_tui.features.tensors.follow import SaveOrder, TensorDownloads


def test_a_file_of_the_former_job_is_not_shown_with_the_next() -> None:
    downloads = TensorDownloads(RequestTracker(FakeConnections().send))
    first = frame_of(rank_view(0, "a"))
    other = frame_of(rank_view(0, "a"), job=structs.replace(JOB, nonce="another"))
    downloads.update(first, 1)
    downloads.take(SaveOrder(9, 1, Path("x")), first, 1)  # there is no such rank: over at once
    downloads.update(first, 2)
    assert [writing.state for writing in downloads.writings] == ["failed"]
    downloads.update(other, 3)
    assert downloads.writings == ()
    downloads.close(4)

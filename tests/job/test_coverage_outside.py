"""What is said of ranks without a recorder whose memory may not be read."""

from __future__ import annotations

from msgspec.structs import replace

from diagnosis.outside import Outside
from frtop_tui.job.coverage import RankCounts


def test_what_is_in_the_way_of_the_books_is_said_once() -> None:
    scene = Outside(3)
    scene.settle(1)
    counts = RankCounts()
    views = {}
    for number, view in scene.frame().ranks.items():
        identity = replace(view.identity, books=False)
        views[number] = replace(view, identity=identity, notes=("no right to read its memory",))
        counts.put(None, views[number])
    (first, *_) = counts.coverage(views, 3, 0, 0).notes
    assert first.text == "books of ranks 0-2 not read; rank 0: no right to read its memory"
    readable = {number: replace(view, notes=()) for number, view in views.items()}
    for number, view in readable.items():
        identity = replace(view.identity, books=True)
        counts.put(views[number], replace(view, identity=identity))
    assert not any("books" in note.text for note in counts.coverage(readable, 3, 0, 0).notes)

"""What is said of ranks without a recorder whose memory may not be read."""

from __future__ import annotations

from msgspec.structs import replace

from diagnosis.unprepared import Unprepared
from frtop_probe import wire
from frtop_tui.job.clock import HostClock
from frtop_tui.job.coverage import RankCounts
from frtop_tui.job.record import RankRecord
from frtop_tui.job.transports import of_rank
from frtop_tui.job.unprepared import NEXT_TIME, NOT_PREPARED, preparation, without_recorder


def test_what_is_in_the_way_of_the_c10d_state_is_said_once() -> None:
    scene = Unprepared(3)
    scene.settle(1)
    counts = RankCounts()
    views = {}
    for number, view in scene.frame().ranks.items():
        identity = replace(view.identity, c10d_readable=False)
        views[number] = replace(view, identity=identity, notes=("no right to read its memory",))
        counts.put(None, views[number])
    (first, *_) = counts.coverage(views, 3, 0, 0).notes
    assert first.text == "c10d state of ranks 0-2 not read; rank 0: no right to read its memory"
    readable = {number: replace(view, notes=()) for number, view in views.items()}
    for number, view in readable.items():
        identity = replace(view.identity, c10d_readable=True)
        counts.put(views[number], replace(view, identity=identity))
    assert not any("c10d" in note.text for note in counts.coverage(readable, 3, 0, 0).notes)


def test_a_rank_whose_ring_cannot_be_read_was_prepared() -> None:
    why = f"{wire.OF_RECORDER}its ring cannot be read (it was truncated to 0 bytes)"
    scene = Unprepared(3)
    scene.prepared = {0, 2}
    scene.notes[1] = (why,)
    scene.settle(1)
    frame = scene.frame()
    texts = [note.text for note in frame.coverage.notes]
    assert f"rank 1: {why}; it is seen from outside" in texts
    assert not any(NOT_PREPARED in text or NEXT_TIME in text for text in texts)
    assert preparation(frame.coverage, 3) == "rank 1 ring not readable: seen from outside"
    assert (
        without_recorder(frame.ranks[1]) == f"process {scene.rank(1).identity.pid} (rank 1): {why}"
    )
    scene.prepared = set()  # beside others that have no recorder
    scene.settle(1)
    coverage = scene.frame().coverage
    assert (coverage.unprepared, coverage.unreadable) == ((0, 1, 2), (1,))
    assert any(note.text.startswith(f"ranks 0,2: {NOT_PREPARED}") for note in coverage.notes)
    assert preparation(coverage, 3) == f"ranks 0,2 {NOT_PREPARED}"
    scene.unreadable = {1}
    scene.settle(1)
    texts = [note.text for note in scene.frame().coverage.notes]
    assert sum(why in text for text in texts) == 1


def test_ranks_that_ended_before_they_were_seen_have_not_to_start() -> None:
    scene = Unprepared(3)
    scene.gone(0, 2)
    scene.settle(1)
    assert "not started yet" in scene.frame().coverage.notes[0].text
    scene.notes[1] = (wire.OTHERS_ENDED,)
    scene.settle(1)
    text = scene.frame().coverage.notes[0].text
    assert text == "ranks 0,2 never reported: ended, according to the others' launcher"


def test_transports_past_c10d_are_listed_as_not_observed() -> None:
    scene = Unprepared(3)
    scene.beside([0, 1, 2], "pynccl", "DeepEP")
    scene.settle(1)
    texts = [note.text for note in scene.frame().coverage.notes]
    assert "beside c10d: pynccl, DeepEP (not observed)" in texts
    scene.beside([0])
    scene.beside([2])
    scene.settle(1)
    frame = scene.frame()
    texts = [note.text for note in frame.coverage.notes]
    assert "rank 1: beside c10d: pynccl, DeepEP (not observed)" in texts
    assert [rank.evidence.has_transports for rank in frame.ranks.values()] == [
        True, False, True,
    ]  # fmt: skip
    assert of_rank(frame.ranks[1]) == (
        "beside c10d: pynccl, DeepEP (not observed); pynccl: module pynccl is imported;"
        " DeepEP: module deepep is imported"
    )
    assert of_rank(frame.ranks[0]) == ""


def test_what_cannot_be_read_any_more_leaves_what_is_known() -> None:
    scene = Unprepared(2)
    scene.beside([0, 1], "DeepEP")
    scene.settle(1)
    for actor in scene.actors.values():
        actor.transports = None
    update = scene.update_of(scene.actors[0])
    record = RankRecord("node0", HostClock(), 1, update.identity or scene.rank(0).identity)
    record.apply(replace(update, transports=(wire.Transport("DeepEP"),)), 1)
    record.apply(update, 2)
    assert record.latest.transports == (wire.Transport("DeepEP"),)
    assert not record.latest.evidence.has_transports

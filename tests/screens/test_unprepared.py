"""A job without the recorder on all screens: what is seen from outside, and what is not."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from frtop_probe import wire
from frtop_tui.files import capture
from frtop_tui.job.model import UNPREPARED, Recorded
from frtop_tui.job.unprepared import NOT_PREPARED, is_least_since, preparation
from frtop_tui.screens.availability import why_unavailable
from frtop_tui.text.plain import text
from frtop_tui.text.statistics_words import no_steps_words
from frtop_tui.widgets.queue_pane import queue_lines
from frtop_tui.widgets.spans import text_of
from frtop_tui.widgets.verdict import note_lines

from . import scenes
from .driving import driven
from .scenes import CULPRIT, NOW, S
from .unprepared_scenes import outside


async def test_the_first_line_says_that_the_job_is_seen_from_outside() -> None:
    async with driven(outside(), size=(200, 60)) as app:
        await app.sees(f"llama-70b · 64 ranks · node[0-7] · {NOT_PREPARED}")
        await app.sees("HUNG for at least 4m12s · times out in at most 5m48s")
        await app.sees("no progress · for >= 4m12s", "b blocked   >=4m12s")
        await app.sees("note", "so past ops only as far as torch records them; `frtop run")
        await app.give(scenes.hung())
        await app.sees("HUNG for 4m12s")
        assert "prepared" not in app.text()
        assert ">=" not in app.text()
        # A narrow terminal shortens it instead of cutting it.
        await app.resize(80, 24)
        await app.give(replace(outside(), other_jobs=(scenes.JOB,) * 3))
        await app.sees("+3 other jobs (J)", "node[0-7] · not prepared")
        assert ":" not in app.text().splitlines()[0]


def test_without_a_recorder_nobody_is_told_to_mark_steps() -> None:
    assert no_steps_words(outside()).startswith("no step is seen from outside; `frtop run -- ...`")


def test_where_only_some_have_no_recorder_they_are_named() -> None:
    frame = outside(ranks={2, 3})
    assert preparation(frame.coverage, len(frame.ranks)) == f"ranks 2-3 {NOT_PREPARED}"
    assert any(note.text.startswith("ranks 2-3: not prepared") for note in frame.coverage.notes)
    assert preparation(scenes.hung().coverage, 64) == ""


def test_an_op_that_came_while_somebody_looked_is_as_old_as_it_says() -> None:
    watched, found = outside(dated=True), outside()
    assert not is_least_since(watched, watched.since_ns)
    assert is_least_since(found, found.since_ns)
    # What began long after the first look is not older than that.
    assert not is_least_since(found, found.since_ns - 60 * S)


def queue(rank: int) -> str:
    frame = outside()
    ahead = {("0", "0-63", 0): 8812}
    rows = queue_lines(frame.ranks[rank], NOW, 120, ahead)
    return "\n".join(map(text_of, rows))


def test_the_queue_has_pending_ops_with_their_least_age_and_what_is_not_issued() -> None:
    shown = queue(0)
    assert "pending  1 (> blocked in it)" in shown
    assert "#8812 dp:0 all_reduce" in shown
    assert ">= 4m12s" in shown
    assert "dp:0  #8812 issued >= 4m12s ago" in shown
    assert "recent" not in shown
    assert "history  not recorded; `frtop run -- ...` records it next time" in shown
    shown = queue(CULPRIT)
    assert "pending  none" in shown
    assert "dp:0  #8811 issued >= 4m12s ago; #8812 not issued" in shown
    assert "tp:4  no number readable" in shown


def test_of_a_ring_that_cannot_be_read_it_says_why() -> None:
    why = f"{wire.OF_RECORDER}its ring cannot be read (of another size)"
    damaged = replace(outside().ranks[0], notes=(why,))
    shown = "\n".join(map(text_of, queue_lines(damaged, NOW, 120, {})))
    assert f"history  {why}" in shown
    assert "next time" not in shown


def test_the_history_is_what_torch_has_recorded_with_what_it_does_not_tell() -> None:
    frame = outside()
    rank = frame.ranks[0]
    assert rank.snapshot is not None
    (pending,) = rank.pending
    last = replace(pending, sequence=-5, done_ns=0)  # in the ring, too
    over = replace(pending, sequence=-7, number=8811, done_ns=pending.issued_ns, timed=False)
    note = "Flight Recorder: the last 2 of 9 ops of gloo; roots are not recorded"
    snapshot = replace(rank.snapshot, ops=(over, last), ops_note=note)
    unprepared = replace(rank, snapshot=snapshot, evidence=UNPREPARED)
    rows = [text_of(row) for row in queue_lines(unprepared, NOW, 120, {})]
    source, limits = note.split("; ")
    begin = rows.index(f"history  {source}")
    shown, last_row = rows[begin + 1 :]
    assert last_row.strip() == limits
    assert "#8811 dp:0 all_reduce" in shown
    assert "4m12s ago" in shown


def test_books_that_cannot_be_read_are_no_empty_queue() -> None:
    view = outside().ranks[CULPRIT]
    blind = replace(view, identity=replace(view.identity, c10d_readable=False), groups={})
    shown = "\n".join(text_of(row) for row in queue_lines(blind, NOW, 80))
    assert "pending  not known: c10d state is not readable" in shown
    assert "none" not in shown


async def test_what_needs_the_recorder_says_that_there_is_none(tmp_path: Path) -> None:
    async with driven(outside(), size=(120, 40)) as app:
        await app.press("enter")
        await app.sees(f"rank {CULPRIT}", "history  not recorded")
        await app.press("t")
        await app.sees("process 90077 (rank 37) has no")
        assert app.source.inspected == []
        path = tmp_path / "hang.cap"
        capture.write(path, outside(), {}, ())
        await app.press("1")
        await app.give(capture.read(path))
        await app.sees("CAPTURE of", NOT_PREPARED)
        await app.press("enter")
        await app.sees("history  not recorded")


async def test_in_a_job_of_both_kinds_a_rank_without_a_recorder_is_not_asked() -> None:
    async with driven(outside(ranks={0}), size=(120, 40)) as app:
        await app.press("t")  # the culprit has no tensors, so rank 0, which waits for it
        await app.sees("process 90040 (rank 0) has no recorder")
        assert app.source.inspected == []
        await app.press("n")
        await app.wait_for(lambda: app.source.inspected == [1], "rank 1 is asked")


@pytest.mark.parametrize("action", ["tensors", "inspect", "save"])
def test_why_a_key_does_nothing(action: str) -> None:
    everybody, some = outside(), outside(ranks={0})
    assert "has no recorder" in why_unavailable(action, everybody)
    assert why_unavailable(action, some) == ""
    assert "has no recorder" in why_unavailable(action, some, "node0", some.ranks[0])
    assert why_unavailable(action, some, "node0", some.ranks[1]) == ""
    if action == "tensors":  # a capture has some
        recorded = Recorded("capture", "hang.cap", scenes.WALL)
        everybody, some = (replace(one, recorded=recorded) for one in (everybody, some))
        assert "has no recorder" in why_unavailable(action, everybody)
        assert why_unavailable(action, some) == ""


def test_what_many_ranks_note_is_one_line_and_of_many_notes_the_first_are_shown() -> None:
    frame = outside()
    alike = {
        n: replace(view, notes=("c10d state not readable: stripped libtorch",) if n < 63 else ())
        for n, view in frame.ranks.items()
    }
    rows = [text_of(row) for row in note_lines(replace(frame, ranks=alike), 100)]
    assert "note  ranks 0-62: c10d state not readable: stripped libtorch" in rows
    assert len(rows) < 12
    differing = {n: replace(view, notes=(f"reason {n}",)) for n, view in frame.ranks.items()}
    rows = [text_of(row) for row in note_lines(replace(frame, ranks=differing), 100)]
    assert rows[-1] == "note  and 56 more notes from its ranks"
    assert len(rows) < 20


async def test_the_list_of_jobs_says_who_has_a_recorder() -> None:
    async with driven(outside(ranks=range(60)), size=(130, 30)) as app:
        await app.press("J")
        await app.sees("recorder", "4 of 64")


def test_a_capture_keeps_that_nobody_prepared_the_job(tmp_path: Path) -> None:
    path = tmp_path / "hang.cap"
    capture.write(path, outside(), {}, ("no history of ranks 0-63: they have no recorder",))
    frame = capture.read(path)
    assert frame.coverage.unprepared == tuple(range(64))
    assert not frame.ranks[0].identity.prepared
    lines = text(frame)
    assert "HUNG for at least 4m12s" in lines[0]
    assert "  killed by its own timeout in at most 5m48s" in lines
    assert "note  no history of ranks 0-63: they have no recorder" in lines
    assert any(NOT_PREPARED in line for line in lines)

"""Steps, fetches and notes in a rank's queue, where they happened among its ops."""

from __future__ import annotations

from msgspec.structs import replace

from frtop_probe import wire
from frtop_tui.diagnosis.model import JudgedRank
from frtop_tui.widgets.queue_pane import queue_lines
from frtop_tui.widgets.spans import text_of
from screens.scenes import NOW, hung

MS = 1_000_000


def with_marks(*marks: tuple[str, float, float, int, str, int]) -> JudgedRank:
    """A rank of which only marks are known; times in ms before now, 0 for none."""
    view = hung().ranks[37]
    assert view.snapshot is not None
    now = NOW - view.clock_ns
    made = tuple(
        wire.Mark(
            kind,
            now - round(begin * MS),
            now - round(end * MS) if end else 0,
            number,
            text,
            samples,
        )
        for kind, begin, end, number, text, samples in marks
    )
    return replace(view, snapshot=replace(view.snapshot, marks=made))


def shown(view: JudgedRank) -> list[str]:
    return [" ".join(text_of(line).split()) for line in queue_lines(view, NOW, 110)]


MARKS = (
    ("step", 9000, 9000, 411, "", 0),
    ("fetch", 8990, 8980, 0, "", 0),
    ("forward", 8900, 8700, 412, "", 0),
    ("backward", 8700, 8300, 412, "", 0),
    ("backward", 8300, 8200, 412, "", 0),
    ("note", 8100, 8100, 0, "checkpoint\nwritten", 0),
    ("step", 8000, 8000, 412, "", 4096),
    ("fetch", 7000, 0, 0, "", 0),
)


def test_a_step_has_one_line_with_the_sums_of_what_was_in_it() -> None:
    lines = shown(with_marks(*MARKS))
    assert (
        "- step 412 took 1.00 s: fetch 10.0 ms, forward 200 ms, "
        "backward 500 ms (2 times); 4,096 samples" in lines
    )
    assert "- step 411 ended" in lines
    assert "- in step 413 for 8s: in fetch for 7s" in lines
    assert "- note, 8s ago: checkpoint written" in lines


def test_lines_stand_among_the_ops_newest_first() -> None:
    view = with_marks(*MARKS)
    assert view.snapshot is not None
    done = [op for op in view.snapshot.ops if op.done_ns]
    between = done[len(done) // 2].issued_ns + 1
    step = wire.Mark("step", between, between, 7)
    lines = shown(replace(view, snapshot=replace(view.snapshot, marks=(step,))))
    at = lines.index("- step 7 ended")
    recent = next(n for n, line in enumerate(lines) if "recent" in line)
    newer = sum(op.issued_ns > between for op in done)
    assert lines[recent + 1].startswith("- in step 8")
    assert at - recent - 2 == newer


def test_of_a_rank_that_has_ended_nothing_goes_on() -> None:
    view = with_marks(*MARKS)
    ended = replace(view, exit_info=wire.ExitInfo(NOW - view.clock_ns))
    assert "- ended in step 413: in fetch at its end" in shown(ended)


def test_without_marks_there_is_no_line() -> None:
    assert not [line for line in shown(with_marks()) if line.startswith("-")]

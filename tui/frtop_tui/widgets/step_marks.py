"""Lines of a rank's queue for what it did beside ops: one for each step, and one for each note.

A step's line has the sums of its fetches and phases: a line for each of them would bury the ops.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from frtop_probe import wire
from frtop_tui.diagnosis.model import JudgedRank
from frtop_tui.job.naming import printable
from frtop_tui.widgets.formats import format_age_coarse, format_duration
from frtop_tui.widgets.spans import Line, fit

PARTS: Final = ("fetch", "forward", "backward", "optimizer")
Placed = tuple[int, Line]
"""A line, and the time of the rank's host at which it belongs."""


def step_lines(
    rank: JudgedRank, marks: Iterable[wire.Mark], now_ns: int, width: int
) -> list[Placed]:
    """The lines, newest first.

    Args:
        rank: whose marks.
        marks: oldest first.
        now_ns: operator's clock.
        width: of the pane.
    """
    placed: list[Placed] = []
    parts: list[wire.Mark] = []
    before: wire.Mark | None = None
    for mark in marks:
        if mark.kind == "note":
            words, age = f"note  {printable(mark.text)}", _age(rank, mark.begin_ns, now_ns)
            placed.append((mark.begin_ns, _line(words, f"{age} ago", width)))
        elif mark.kind == "step":
            placed.append((mark.end_ns, _step_line(before, mark, parts, width)))
            before, parts = mark, []
        elif mark.kind in PARTS:
            parts.append(mark)
    if parts:
        placed.append((parts[-1].begin_ns, _unfinished(rank, before, parts, now_ns, width)))
    return sorted(placed, key=lambda one: -one[0])


def _step_line(
    before: wire.Mark | None, step: wire.Mark, parts: Sequence[wire.Mark], width: int
) -> Line:
    """`step 412 ended, 4,096 samples: fetch 12.0 ms, backward 80.1 ms`, and how long it took.

    Of the first one, whose begin is not known, nothing else is said.
    """
    words = f"step {step.number:,} ended"
    if step.samples:
        words += f", {step.samples:,} samples"
    if before is None:
        return _line(words, "", width)
    sums = _sums(parts)
    return _line(
        f"{words}: {sums}" if sums else words, format_duration(step.end_ns - before.end_ns), width
    )


def _unfinished(
    rank: JudgedRank,
    before: wire.Mark | None,
    parts: Sequence[wire.Mark],
    now_ns: int,
    width: int,
) -> Line:
    """What is known of the step that the rank is in, and what of it lasts."""
    done = [mark for mark in parts if mark.end_ns]
    lasting = [mark for mark in parts if not mark.end_ns]
    words = [_sums(done)] if done else []
    over = rank.exit_info is not None
    words += [
        f"in {mark.kind} " + ("at its end" if over else "for " + _age(rank, mark.begin_ns, now_ns))
        for mark in lasting
    ]
    title = f"in step {before.number + 1:,}" if before is not None else "in a step"
    since = before.end_ns if before is not None else 0
    age = _age(rank, since, now_ns) if since and not over else ""
    return _line(f"{title}: {', '.join(words)}" if words else title, age, width)


def _sums(parts: Iterable[wire.Mark]) -> str:
    """`fetch 12.0 ms, forward 40.2 ms (3 times)`; of what did not happen, nothing."""
    took: dict[str, list[int]] = {}
    for mark in parts:
        took.setdefault(mark.kind, []).append(mark.end_ns - mark.begin_ns)
    return ", ".join(
        f"{kind} {format_duration(sum(took[kind]))}"
        + (f" ({len(took[kind])} times)" if len(took[kind]) > 1 else "")
        for kind in PARTS
        if kind in took
    )


def _age(rank: JudgedRank, since_ns: int, now_ns: int) -> str:
    return format_age_coarse(rank.age_s(since_ns, now_ns))


def _line(words: str, took: str, width: int) -> Line:
    room = max(10, width - 14)
    return (("- ", "dim"), (fit(words, room), "dim"), (" " + fit(took, 9, right=True), "dim"))

"""Lines of a rank's queue for what it did beside ops: one for each step, and one for each note.

A step's line has the sums of its fetches and phases: a line for each of them would bury the ops.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from frtop_probe import wire
from frtop_tui.diagnosis.model import JudgedRank
from frtop_tui.job.naming import printable
from frtop_tui.job.units import counted, live_duration, timing
from frtop_tui.widgets.spans import Line, fit

PARTS: Final = ("fetch", "forward", "backward", "optimizer")
_NOW: Final = 2**63
Placed = tuple[int, Line]
"""A line, and the time of the rank's host at which it belongs."""


def step_lines(
    rank: JudgedRank, marks: Iterable[wire.Mark], now_ns: int, width: int
) -> list[Placed]:
    """The lines, newest first: a step stands above what was in it.

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
            words = f"note, {_age(rank, mark.begin_ns, now_ns)} ago: {printable(mark.text)}"
            placed.append((mark.begin_ns, _line(words, width)))
        elif mark.kind == "step":
            placed.append((mark.end_ns, _line(_step(before, mark, parts), width)))
            before, parts = mark, []
        elif mark.kind in PARTS:
            parts.append(mark)
    if parts or before is not None:
        placed.append((_NOW, _line(_unfinished(rank, before, parts, now_ns), width)))
    return sorted(placed, key=lambda one: -one[0])


def _step(before: wire.Mark | None, step: wire.Mark, parts: Sequence[wire.Mark]) -> str:
    """`step 412 took 1.00 s: fetch 12.0 ms, backward 80.1 ms; 4,096 samples`.

    Of the first step, whose start is not known, it says only that it has ended.
    """
    samples = f"; {counted(step.samples, 'sample')}" if step.samples else ""
    if before is None:
        return f"step {step.number:,} ended{samples}"
    took, sums = timing(step.end_ns - before.end_ns), _sums(parts)
    return f"step {step.number:,} took {took}{f': {sums}' if sums else ''}{samples}"


def _unfinished(
    rank: JudgedRank, before: wire.Mark | None, parts: Sequence[wire.Mark], now_ns: int
) -> str:
    """What is known of the step that the rank is in, and what of it lasts."""
    over = rank.exit_info is not None
    done = [mark for mark in parts if mark.end_ns]
    words = [_sums(done)] if done else []
    words += [
        f"in {mark.kind} {'at its end' if over else 'for ' + _age(rank, mark.begin_ns, now_ns)}"
        for mark in parts
        if not mark.end_ns
    ]
    title = "in a step"
    if before is not None:
        title = f"in step {before.number + 1:,}"
        title += "" if over else f" for {_age(rank, before.end_ns, now_ns)}"
    return f"{title}: {', '.join(words)}" if words else title


def _sums(parts: Iterable[wire.Mark]) -> str:
    """`fetch 12.0 ms, forward 40.2 ms (3 times)`; of what did not happen, nothing."""
    took: dict[str, list[int]] = {}
    for mark in parts:
        took.setdefault(mark.kind, []).append(mark.end_ns - mark.begin_ns)
    return ", ".join(
        f"{kind} {timing(sum(took[kind]))}"
        + (f" ({len(took[kind])} times)" if len(took[kind]) > 1 else "")
        for kind in PARTS
        if kind in took
    )


def _age(rank: JudgedRank, since_ns: int, now_ns: int) -> str:
    return live_duration(rank.age_s(since_ns, now_ns))


def _line(words: str, width: int) -> Line:
    return (("- ", "dim"), (fit(words, max(10, width - 2)).rstrip(), "dim"))

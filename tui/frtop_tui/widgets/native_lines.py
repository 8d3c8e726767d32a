"""Native stacks as lines: frames of C and C++ begin with a C, and name their library."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from frtop_probe import wire
from frtop_tui.diagnosis.model import JudgedRank
from frtop_tui.job.native_stacks import group_alike, held_for
from frtop_tui.job.stack_frames import frame_line, user_frame_index
from frtop_tui.job.units import live_duration
from frtop_tui.widgets.spans import Line, Span, fit, join, plain, tail, wrap

YOURS: Final[Span] = ("  ◀ yours", "yours")
LONGEST_NAME: Final = 56


def native_title(rank: JudgedRank, now_ns: int) -> str:
    """When the stacks were taken, and how long the rank stood still."""
    taken = rank.native
    if taken is None or not taken.at_ns:
        return "native stacks"
    age = live_duration(rank.age_s(taken.at_ns, now_ns))
    return ", ".join(filter(None, (f"native stacks, {age} old", held_for(taken))))


def native_lines(rank: JudgedRank, width: int, *, waiting: bool = False) -> list[Line]:
    """All threads, the main thread first; those with one stack once.

    With `waiting` they are being taken: what there is, is older.
    """
    taken = rank.native
    if waiting:
        return wrap(f"being taken: rank {rank.rank} stands still meanwhile", width, "warn")
    if taken is None:
        return [plain("no native stacks yet; N takes them", "dim")]
    rows = wrap(taken.note, width, "bad") if taken.note else []
    if not taken.dump.threads:
        why = taken.dump.help or taken.dump.error or "its process has no threads"
        return [*rows, *wrap(why, width, "warn")]
    for alike in group_alike(taken.dump.threads):
        thread = alike.first
        count = plain(f"{alike.count} threads alike") if alike.count > 1 else ()
        state = plain("active" if thread.active else "idle", "" if thread.active else "dim")
        gil = plain("holds the GIL" if thread.owns_gil else "", "warn")
        name = plain(thread.name or "thread", "strong")
        rows.append(join((name, count, state, gil, plain(f"tid {thread.tid}", "dim"))))
        rows += native_frame_lines(alike.frames, width)
        if alike.hidden:
            rows.append(plain(f"  … the interpreter's start: {alike.hidden}", "dim"))
    return rows


def native_frame_lines(frames: Sequence[wire.TraceFrame], width: int) -> list[Line]:
    """Frames innermost first, those of C and C++ marked; of long names the end is shown."""
    mine = user_frame_index(frames)
    longest = max((len(frame.function) for frame in frames), default=16)
    names = min(LONGEST_NAME, max(16, width * 3 // 5), longest)
    rows: list[Line] = []
    for index, frame in enumerate(frames):
        tone = "yours" if index == mine else ""
        room = max(8, width - names - 3 - (10 if index == mine else 0))
        mark = "C " if frame.native else "  "
        row: Line = (
            (mark, "key" if frame.native else ""),
            (fit(tail(frame.function, names), names) + " ", tone),
            (tail(frame_line(frame), room), tone or "dim"),
        )
        rows.append((*row, YOURS) if index == mine else row)
    return rows or [plain("  no frames", "dim")]

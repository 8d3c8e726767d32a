"""Stacks of ranks as lines of text, and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from frtop_probe import wire
from frtop_probe.ring.rank_ranges import fold
from frtop_tui.diagnosis.model import Frame, JudgedRank
from frtop_tui.job.naming import printable, rank_words
from frtop_tui.job.native_stacks import group_alike, held_for
from frtop_tui.job.stack_frames import frame_line, is_user_code, shown_frames, user_frame_index
from frtop_tui.job.units import duration
from frtop_tui.text.lines import Line, join, plain, text_of
from frtop_tui.text.merged_stacks import branches, merge_frame, why_no_thread

_NAME: Final = 56
"""Columns for names of functions; longer ones move their file to the right."""


def rank_lines(rank: JudgedRank, now_ns: int, *, native: bool) -> list[str]:
    """One rank: who it is, how old its stacks are, and all its threads."""
    dump, age = _dump_of(rank, native=native), _age_s(rank, now_ns, native=native)
    parts = [f"rank {rank.rank}", rank.host, f"pid {rank.identity.pid}", rank.state]
    if age is not None:
        parts.append(f"{'native ' if native else ''}stacks {duration(age)} old")
    if native and rank.native is not None:
        parts.append(held_for(rank.native))
    lines = ["  ".join(filter(None, parts))]
    if native and rank.native is not None and rank.native.note:
        lines.append(f"note  {rank.native.note}")
    if dump is None or not dump.threads:
        lines.append(f"  {why_none(dump)}")
        return list(map(printable, lines))
    for alike in group_alike(dump.threads):
        lines.append("  " + text_of(join(thread_parts(alike.first, alike.count), "  ")))
        frames = alike.frames if native else shown_frames(alike.first.frames)
        lines += frame_lines(frames, "    ")
        if native and alike.hidden:
            lines.append(f"      (frames of the interpreter's start: {alike.hidden})")
    return list(map(printable, lines))


def thread_parts(
    thread: wire.ThreadStack, alike: int = 1, name: str = "", kernel: str = ""
) -> tuple[Line, ...]:
    """Name and state of a thread. A waiting thread is `idle`, even if it hangs.

    `alike` threads share its name and stack; `name` replaces its own; `kernel` is its state there.
    faulthandler says neither which threads run nor their kernel's number, which is 0 then.
    """
    runs = plain("active" if thread.active else "idle", "" if thread.active else "dim")
    return (
        plain(name or thread.name or "thread", "strong"),
        plain(f"{alike} threads alike" if alike > 1 else ""),
        runs if thread.tid or thread.active else plain(""),
        plain("holds the GIL" if thread.owns_gil else "", "warn"),
        plain(kernel, "dim"),
        plain(f"tid {thread.tid}" if thread.tid else "", "dim"),
    )


class FrameCells(NamedTuple):
    """One frame: `mark` is C for C and C++, `source` its text if it is the user's code."""

    mark: str
    function: str
    place: str
    source: str
    is_mine: bool


def frame_cells(frames: Sequence[wire.TraceFrame]) -> list[FrameCells]:
    """A row per frame; `is_mine` is the innermost one of the user's own code."""
    mine = user_frame_index(frames)
    return [
        FrameCells(
            "C" if frame.native else " ",
            frame.function,
            frame_line(frame),
            frame.source.strip() if is_user_code(frame) else "",
            index == mine,
        )
        for index, frame in enumerate(frames)
    ]


def frame_lines(frames: Sequence[wire.TraceFrame], indent: str) -> list[str]:
    """The same for a terminal, without sources."""
    rows = frame_cells(frames)
    names = min(_NAME, max((len(row.function) for row in rows), default=0))
    return [
        f"{indent}{row.mark} {row.function:<{names}}  {row.place}{'  <- yours' * row.is_mine}"
        for row in rows
    ]


def merged_lines(frame: Frame, ranks: Sequence[int]) -> list[str]:
    """The working threads of many ranks as a tree, outermost frame first, indented at branches."""
    merged = merge_frame(frame, ranks)
    lines: list[str] = []
    for branch in branches(merged.roots):
        indent = "  " * branch.depth
        lines.append(f"{indent}{rank_words(fold(branch.ranks))}")
        lines += frame_lines([node.frame for node in branch.nodes], indent)
    lines += [f"{rank_words(fold(numbers))}: no stack: {why}" for why, numbers in merged.missing]
    return list(map(printable, lines))


def why_none(dump: wire.StackDump | None) -> str:
    if dump is None:
        return "no stacks: it has not answered"
    return why_no_thread(dump)


def stacks_document(ranks: Iterable[JudgedRank], now_ns: int, *, native: bool) -> dict[str, Any]:
    """The object that `frtop stacks --json` prints; keys are only ever added."""
    return {
        "schema": "frtop-stacks-1",
        "ranks": [_rank_document(rank, now_ns, native=native) for rank in ranks],
    }


def _rank_document(rank: JudgedRank, now_ns: int, *, native: bool) -> dict[str, Any]:
    dump = _dump_of(rank, native=native)
    found: dict[str, Any] = {
        "rank": rank.rank,
        "host": rank.host,
        "pid": rank.identity.pid,
        "state": rank.state,
        "age_s": _age_s(rank, now_ns, native=native),
        "error": (dump.error or None) if dump is not None else "deadline",
        "help": (dump.help or None) if dump is not None else why_none(dump),
        "threads": [_thread_document(thread) for thread in dump.threads] if dump else [],
    }
    if native:
        taken = rank.native
        found["tool"] = (taken.tool or None) if taken is not None else None
        found["stopped_s"] = taken.stopped_ns / 1e9 if taken is not None else None
        found["note"] = (taken.note or None) if taken is not None else None
    return found


def _thread_document(thread: wire.ThreadStack) -> dict[str, Any]:
    return {
        "name": thread.name,
        "tid": thread.tid,
        "active": thread.active,
        "owns_gil": thread.owns_gil,
        "frames": [
            {"function": f.function, "file": f.file, "line": f.line or None, "native": f.native}
            for f in thread.frames
        ],
    }


def own_dump(rank: JudgedRank) -> wire.StackDump | None:
    """The last dump of the rank's own process."""
    dumps = rank.snapshot.dumps if rank.snapshot is not None else ()
    return next((dump for dump in dumps if dump.pid == rank.identity.pid), None)


def _dump_of(rank: JudgedRank, *, native: bool) -> wire.StackDump | None:
    if native:
        return rank.native.dump if rank.native is not None else None
    return own_dump(rank)


def _age_s(rank: JudgedRank, now_ns: int, *, native: bool) -> float | None:
    taken_ns = rank.stacks_taken_ns
    if native:
        taken_ns = rank.native.at_ns if rank.native is not None else 0
    return round(rank.age_s(taken_ns, now_ns), 3) if taken_ns else None

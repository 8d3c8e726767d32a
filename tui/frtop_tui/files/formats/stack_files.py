"""Stacks for other programs: speedscope, flame graphs, and py-spy's own JSON."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import metadata
from typing import Any, Final

import msgspec

from frtop_probe import wire
from frtop_tui.diagnosis.evidence.working_thread import working_stack
from frtop_tui.diagnosis.model import Frame, JudgedRank
from frtop_tui.errors import NotWritten
from frtop_tui.files.pyspy import SUFFIX
from frtop_tui.job.naming import job_title, printable
from frtop_tui.job.stack_frames import frame_line
from frtop_tui.text.merged_stacks import merge_frame

SPEEDSCOPE_SCHEMA: Final = "https://www.speedscope.app/file-format-schema.json"
_NEXT: Final = "take them first: `frtop capture`, or `b` on the screen; docs/unprepared.md says why"


def speedscope(frame: Frame) -> bytes:
    """Profiles for speedscope: all ranks together, stacks weighted by ranks; then each rank."""
    names: dict[tuple[str, str, int], int] = {}
    frames: list[dict[str, Any]] = []

    def place(one: wire.TraceFrame) -> int:
        key = (one.function, one.file, one.line)
        if key not in names:
            names[key] = len(frames)
            shown: dict[str, Any] = {"name": printable(one.function), "file": printable(one.file)}
            frames.append(shown | ({"line": one.line} if one.line else {}))
        return names[key]

    stacks = {view.rank: _main(view) for view in _with_stacks(frame)}
    samples = {rank: [place(one) for one in reversed(found)] for rank, found in stacks.items()}
    distinct: dict[tuple[int, ...], int] = {}
    for sample in samples.values():
        distinct[tuple(sample)] = distinct.get(tuple(sample), 0) + 1
    title = printable(job_title(frame.job)) if frame.job is not None else "job"
    profiles = [
        _profile(f"all ranks of {title}", [list(one) for one in distinct], list(distinct.values()))
    ]
    profiles += [_profile(f"rank {rank}", [one], [1]) for rank, one in samples.items()]
    return msgspec.json.encode(
        {
            "$schema": SPEEDSCOPE_SCHEMA,
            "exporter": f"frtop@{metadata.version('frtop')}",
            "name": title,
            "activeProfileIndex": 0,
            "shared": {"frames": frames},
            "profiles": profiles,
        }
    )


def _profile(name: str, samples: list[list[int]], weights: list[int]) -> dict[str, Any]:
    return {
        "type": "sampled",
        "name": name,
        "unit": "none",
        "startValue": 0,
        "endValue": sum(weights),
        "samples": samples,
        "weights": weights,
    }


def collapsed(frame: Frame) -> bytes:
    """One line per distinct main-thread stack, outermost frame first, with its count of ranks."""
    counts: dict[str, int] = {}
    for view in _with_stacks(frame):
        line = ";".join(_folded_frame(one) for one in reversed(_main(view)))
        counts[line] = counts.get(line, 0) + 1
    lines = [f"{stack} {count}" for stack, count in sorted(counts.items(), key=lambda one: -one[1])]
    return "\n".join([*lines, ""]).encode("utf-8", "replace")


def _folded_frame(one: wire.TraceFrame) -> str:
    """A frame as flamegraph.pl expects it: the last blank of a line precedes the count."""
    return printable(f"{one.function} ({frame_line(one)})").replace(";", ":")


def pyspy_dumps(frame: Frame) -> dict[str, bytes]:
    """Each rank's threads as `py-spy dump --json` writes them, by file name."""
    files = {}
    for view in _with_stacks(frame):
        pid = view.identity.pid
        threads = [_thread(one, pid) for one in view.threads]
        files[f"rank_{view.rank}{SUFFIX}"] = msgspec.json.encode(threads)
    return files


def _thread(one: wire.ThreadStack, pid: int) -> dict[str, Any]:
    return {
        "pid": pid,
        "thread_id": one.ident,
        "thread_name": printable(one.name) or None,
        "os_thread_id": one.tid or None,
        "active": one.active,
        "owns_gil": one.owns_gil,
        "frames": list(map(_frame, one.frames)),
        "process_info": None,
    }


def _frame(one: wire.TraceFrame) -> dict[str, Any]:
    variables = [
        {"name": printable(name), "addr": 0, "arg": False, "repr": printable(text)}
        for name, text in one.variables
    ]
    return {
        "name": printable(one.function),
        "filename": printable(one.file),
        "module": printable(one.module) or None,
        "short_filename": printable(one.file.rpartition("/")[2]) or None,
        "line": one.line,
        "locals": variables or None,
        "is_entry": False,
        "is_shim_entry": False,
    }


def _with_stacks(frame: Frame) -> Iterator[JudgedRank]:
    """The ranks that have stacks.

    Raises:
        NotWritten: there are none.
    """
    found = [view for _, view in sorted(frame.ranks.items()) if view.main_stack is not None]
    if not found:
        missing = merge_frame(frame, sorted(frame.ranks)).missing
        why = f": {missing[0][0]}" if missing else ""
        raise NotWritten(f"there are no stacks to write{why}", _NEXT)
    yield from found


def _main(view: JudgedRank) -> tuple[wire.TraceFrame, ...]:
    stack = working_stack(view)
    return stack.frames if stack is not None else ()

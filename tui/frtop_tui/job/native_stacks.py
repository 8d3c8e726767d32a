"""Native stacks: what taking them costs, and which of their frames are informative. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from frtop_probe import wire
from frtop_tui.job.model import Rank
from frtop_tui.job.stack_frames import shown_frames
from frtop_tui.job.units import duration

USUAL_S: Final = 0.7
"""Measured on an idle host with either tool; docs/unprepared.md has the figures."""
MOST_S: Final = 5
"""After this time the agent ends the tool, and the process continues."""


_COMMUNICATION: Final = ("c10d::", "gloo::", "nccl", "ncclx::", "rccl")


@dataclass(frozen=True, slots=True)
class AlikeThreads:
    """Threads with one name and one stack: pools of waiting threads have dozens."""

    first: wire.ThreadStack
    count: int
    frames: tuple[wire.TraceFrame, ...]
    """Without frtop's wrappers and the frames that only start the interpreter (`hidden`)."""
    hidden: int


def cost(rank: Rank) -> str:
    """A sentence that says what taking them costs.

    `Takes about 0.7s, at most 5s, in which rank 3 (pid 4711 on node4) stands still.`
    """
    before = rank.native
    took = before.stopped_ns / 1e9 if before is not None and has_native(rank) else 0.0
    usual = f"{duration(took)}, like last time" if took else f"about {USUAL_S}s"
    where = f"pid {rank.identity.pid} on {rank.host}"
    return f"Takes {usual}, at most {MOST_S}s, in which rank {rank.rank} ({where}) stands still."


def has_native(rank: Rank) -> bool:
    """Whether there are native stacks of the rank to show."""
    return rank.native is not None and bool(rank.native.dump.threads)


def held_for(taken: wire.NativeStacksResponse) -> str:
    """`py-spy held it 0.5s`; "" when no tool was attached."""
    return f"{taken.tool} held it {duration(taken.stopped_ns / 1e9)}" if taken.tool else ""


def group_alike(threads: Sequence[wire.ThreadStack]) -> tuple[AlikeThreads, ...]:
    """Threads by name and stack: the main thread, torch's communication, then the rest."""
    groups: dict[tuple[object, ...], list[wire.ThreadStack]] = {}
    for thread in threads:
        frames = tuple((frame.function, frame.file, frame.line) for frame in thread.frames)
        key = thread.name, thread.active, thread.owns_gil, frames
        groups.setdefault(key, []).append(thread)
    first, *rest = groups.values() if groups else [()]
    ordered = [first, *sorted(rest, key=lambda alike: not _communicates(alike[0]))]
    return tuple(_alike(alike) for alike in ordered if alike)


def _communicates(thread: wire.ThreadStack) -> bool:
    """Whether the thread belongs to c10d or a library below it: an op may run in it."""
    return any(f.native and f.function.startswith(_COMMUNICATION) for f in thread.frames)


def _alike(threads: Sequence[wire.ThreadStack]) -> AlikeThreads:
    frames = threads[0].frames
    outermost = max((i for i, frame in enumerate(frames) if not frame.native), default=-1)
    shown = frames[: outermost + 1] if outermost >= 0 else frames
    hidden = len(frames) - len(shown)
    return AlikeThreads(threads[0], len(threads), tuple(shown_frames(shown)), hidden)

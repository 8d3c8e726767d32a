"""What one rank does, by its stacks alone: in a call of torch.distributed or elsewhere."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from frtop_probe import wire
from frtop_tui.diagnosis.evidence.c10d_call import (
    C10dCall,
    StackPath,
    call_of,
    path_of,
    paths_differ,
)
from frtop_tui.diagnosis.evidence.progress import ProgressSeen
from frtop_tui.diagnosis.evidence.rank_activity import gil_holder
from frtop_tui.diagnosis.evidence.stack_location import OP_WAITS, StackLocation, locate
from frtop_tui.diagnosis.model import Progress
from frtop_tui.job.model import Rank
from frtop_tui.job.record import COMPARABLE_NS

Activity = Literal[
    "inside",  # a call of torch.distributed, or a wait for an op
    "away",  # in none, and where a rank may stay long
    "running",  # in none, and it runs Python or C code
    "unclear",  # asleep in a C call, and the stack does not show what it waits for
]


class StackState(Struct, frozen=True):
    """One rank by its stacks."""

    view: Rank
    activity: Activity
    call: C10dCall | None  # one that destroys groups counts as "away"
    location: StackLocation  # of the main thread
    path: StackPath  # of the thread that is in the call, else of the main one
    progress_seen: ProgressSeen  # between two dumps
    has_left_call: bool = False  # an earlier dump still had it in a call
    thread: str = ""  # that is in the call, "" for the main one

    @property
    def rank(self) -> int:
        return self.view.rank

    @property
    def progress(self) -> Progress:
        return self.progress_seen.progress


def stack_state(view: Rank) -> StackState | None:
    """What the rank does; None if its main thread was not seen in Python."""
    main = view.main_stack
    if main is None or not main.frames:
        return None
    call, thread = _call(main, view.threads)
    location = locate(main, view.process)
    seen, has_left_call = _progress(view, main)
    if call is not None and not call.is_teardown:
        return StackState(view, "inside", call, location, call.path, seen, thread=thread)
    activity = _activity(view, location, is_teardown=call is not None)
    return StackState(view, activity, call, location, path_of(main.frames), seen, has_left_call)


def _activity(view: Rank, location: StackLocation, *, is_teardown: bool) -> Activity:
    holder, main = gil_holder(view), view.main_stack
    # Asleep in C code that did not release the GIL.
    if is_teardown or (holder is not None and not holder.active and holder.frames):
        return "away"
    if location.sure and location.kind not in OP_WAITS | {"computing", "unknown"}:
        return "away"
    awake = main is not None and (main.active or main.owns_gil)
    running = awake or location.kind in ("computing", "backward", "device")
    return "running" if running else "unclear"


def _call(
    main: wire.ThreadStack, threads: tuple[wire.ThreadStack, ...]
) -> tuple[C10dCall | None, str]:
    """The main thread's call, or that of a thread it waits for, such as a checkpoint's."""
    call = call_of(main)
    if call is not None or locate(main).kind != "lock":
        return call, ""
    for other in threads:
        found = call_of(other) if other is not main else None
        if found is not None and found.role != "implicit":
            return found, other.name or f"thread {other.tid}"
    return None, ""


def _progress(view: Rank, main: wire.ThreadStack) -> tuple[ProgressSeen, bool]:
    """Whether the main thread moved between two dumps, and whether it left a call."""
    new, old, before = view.snapshot, view.prior_snapshot, view.prior_stack
    if new is None or old is None or before is None:
        return ProgressSeen("unknown", "stacks_once"), False
    seconds = (new.at_ns - old.at_ns) / 1e9
    moved = paths_differ(_steps(before), _steps(main))
    if moved is None:
        return ProgressSeen("unknown", "stack_lines_unknown", seconds), False
    if moved:
        return ProgressSeen("active", "stack_moved", seconds), call_of(before) is not None
    if new.at_ns - old.at_ns < COMPARABLE_NS:
        return ProgressSeen("unknown", "stacks_too_close", seconds), False
    if main.active and call_of(main) is None:  # a wait inside a call may be busy
        return ProgressSeen("active", "stack_runs", seconds), False
    return ProgressSeen("none", "stack_same", seconds), False


def _steps(main: wire.ThreadStack) -> StackPath:
    call = call_of(main)
    return call.steps if call is not None else path_of(main.frames)

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
from frtop_tui.diagnosis.evidence.working_thread import (
    prior_working_stack,
    working_stack,
    working_thread,
)
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
    location: StackLocation  # of the working thread
    path: StackPath  # of the thread that is in the call, else of the working one
    progress_seen: ProgressSeen  # between two dumps
    has_left_call: bool = False  # an earlier dump still had it in a call
    thread: str = ""  # that is in the call, "" for the working one

    @property
    def rank(self) -> int:
        return self.view.rank

    @property
    def progress(self) -> Progress:
        return self.progress_seen.progress


def stack_state(view: Rank) -> StackState | None:
    """What the rank does; None if its working thread was not seen in Python."""
    working = working_thread(view)
    if working is None or not working.stack.frames:
        return None
    stack = working.stack
    call, thread = _call(stack, view.threads)
    location = locate(stack, working.process)
    seen, has_left_call = _progress(view, stack)
    if call is not None and not call.is_teardown:
        return StackState(view, "inside", call, location, call.path, seen, thread=thread)
    activity = _activity(view, location, is_teardown=call is not None)
    return StackState(view, activity, call, location, path_of(stack.frames), seen, has_left_call)


def _activity(view: Rank, location: StackLocation, *, is_teardown: bool) -> Activity:
    holder, working = gil_holder(view), working_stack(view)
    # Asleep in C code that did not release the GIL.
    if is_teardown or (holder is not None and not holder.active and holder.frames):
        return "away"
    if location.sure and location.kind not in OP_WAITS | {"computing", "unknown"}:
        return "away"
    awake = working is not None and (working.active or working.owns_gil)
    running = awake or location.kind in ("computing", "backward", "device")
    return "running" if running else "unclear"


def _call(
    working: wire.ThreadStack, threads: tuple[wire.ThreadStack, ...]
) -> tuple[C10dCall | None, str]:
    """The working thread's call, or that of a thread it waits for, such as a checkpoint's."""
    call = call_of(working)
    if call is not None or locate(working).kind != "lock":
        return call, ""
    for other in threads:
        found = call_of(other) if other is not working else None
        if found is not None and found.role != "implicit":
            return found, other.name or f"thread {other.tid}"
    return None, ""


def _progress(view: Rank, working: wire.ThreadStack) -> tuple[ProgressSeen, bool]:
    """Whether the working thread moved between two dumps, and whether it left a call."""
    new, old, before = view.snapshot, view.prior_snapshot, prior_working_stack(view)
    if new is None or old is None or before is None:
        return ProgressSeen("unknown", "stacks_once"), False
    seconds = (new.at_ns - old.at_ns) / 1e9
    moved = paths_differ(_steps(before), _steps(working))
    if moved is None:
        return ProgressSeen("unknown", "stack_lines_unknown", seconds), False
    if moved:
        return ProgressSeen("active", "stack_moved", seconds), call_of(before) is not None
    if new.at_ns - old.at_ns < COMPARABLE_NS:
        return ProgressSeen("unknown", "stacks_too_close", seconds), False
    if working.active and call_of(working) is None:  # a wait inside a call may be busy
        return ProgressSeen("active", "stack_runs", seconds), False
    return ProgressSeen("none", "stack_same", seconds), False


def _steps(working: wire.ThreadStack) -> StackPath:
    call = call_of(working)
    return call.steps if call is not None else path_of(working.frames)

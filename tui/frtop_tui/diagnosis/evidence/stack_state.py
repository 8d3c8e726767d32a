"""What one rank does, by its stacks alone: in a call of torch.distributed or elsewhere."""

from __future__ import annotations

from typing import Final, Literal

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
from frtop_tui.diagnosis.evidence.stack_location import StackLocation, locate
from frtop_tui.diagnosis.model import Progress
from frtop_tui.job.model import Rank
from frtop_tui.job.record import COMPARABLE_NS

Activity = Literal[
    "inside",  # a call of torch.distributed, or a wait for an op
    "away",  # in none, and where a rank may stay long
    "running",  # in none, and it runs Python or C code
    "unclear",  # asleep in a C call, and the stack does not show what it waits for
]
_LONG_STAYS: Final = frozenset(
    [
        "dataloader",
        "file_io",
        "file_lock",
        "sleeping",
        "lock",
        "socket",
        "idle",
        "child",
        "pipe",
        "input",
        "key",
        "compiling",
        "importing",
    ]
)
_RUNNING: Final = frozenset({"computing", "backward", "device"})


class StackState(Struct, frozen=True):
    """One rank by its stacks.

    Attributes:
        view: the rank.
        activity: whether it is in a call.
        call: the call that it is in; one that destroys groups counts as "away".
        location: where its main thread is.
        path: the steps of the call's thread, else of the main thread.
        progress_seen: whether it moved between two dumps.
        has_left_call: whether an earlier dump still had it in a call.
        thread: the thread that is in the call, "" for the main one.
    """

    view: Rank
    activity: Activity
    call: C10dCall | None
    location: StackLocation
    path: StackPath
    progress_seen: ProgressSeen
    has_left_call: bool = False
    thread: str = ""

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
    path = path_of(main.frames)
    return StackState(view, activity, call, location, path, seen, has_left_call)


def _sleeps_with_gil(threads: tuple[wire.ThreadStack, ...]) -> bool:
    """Whether a thread sleeps in C code that did not release the GIL."""
    return any(thread.owns_gil and not thread.active and thread.frames for thread in threads)


def _activity(view: Rank, location: StackLocation, *, is_teardown: bool) -> Activity:
    if is_teardown or _sleeps_with_gil(view.threads):
        return "away"
    if location.kind in _LONG_STAYS and location.sure:
        return "away"
    main = view.main_stack
    awake = main is not None and (main.active or main.owns_gil)
    return "running" if awake or location.kind in _RUNNING else "unclear"


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

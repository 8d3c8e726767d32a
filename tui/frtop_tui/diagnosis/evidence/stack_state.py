"""What a rank is doing, by its stacks alone: in a call of torch.distributed or elsewhere."""

from __future__ import annotations

import re
from typing import Final, Literal

from msgspec import Struct

from frtop_probe import wire
from frtop_tui.diagnosis.evidence.c10d_call import (
    C10dCall,
    StackPath,
    call_of,
    path_of,
    paths_differ,
    wait_in_c,
)
from frtop_tui.diagnosis.evidence.progress import WORKS_ELSEWHERE, ProgressSeen
from frtop_tui.diagnosis.evidence.rank_activity import (
    gil_holder,
    located,
    native_leaf,
    native_threads,
)
from frtop_tui.diagnosis.evidence.stack_location import (
    OP_WAITS,
    StackLocation,
    serves_rpc,
    shows_device,
    waits_for_device,
)
from frtop_tui.diagnosis.evidence.working_thread import (
    awaited_threads,
    prior_working_stack,
    working_stack,
    working_thread,
)
from frtop_tui.diagnosis.model import Progress
from frtop_tui.job.model import Rank
from frtop_tui.job.record import COMPARABLE_NS

Activity = Literal[
    "inside",  # a call of torch.distributed, or a wait for an op
    "away",  # in none, at a place where a rank may stay long
    "running",  # in none, running Python or C code
    "unclear",  # asleep in a C call; the stack does not show what it waits for
]
_ON_HOST: Final = re.compile(r"gloo|mpi|ucc|fake|undefined", re.IGNORECASE)
"""Backends whose ops run on hosts; those of MPI and UCC mostly do."""
_DEVICE_LIBRARIES: Final = re.compile(
    r"(^|/)lib(cuda|cudart|nccl|amdhip64|hsa-runtime64|rccl|ze_loader|ascendcl|hccl)\b[^/]*\.so"
)


class StackState(Struct, frozen=True):
    """One rank by its stacks."""

    view: Rank
    activity: Activity
    call: C10dCall | None  # with one that destroys groups, the rank counts as "away"
    location: StackLocation  # of the working thread
    path: StackPath  # of the thread in the call, else of the working one
    progress_seen: ProgressSeen  # between two dumps
    has_left_call: bool = False  # it was in a call in an earlier dump
    thread: str = ""  # the one in the call, "" for the working one
    at_device: bool = False  # it waits for its device, or for a thread that does

    @property
    def rank(self) -> int:
        return self.view.rank

    @property
    def progress(self) -> Progress:
        return self.progress_seen.progress


def stack_state(view: Rank) -> StackState | None:
    """What the rank is doing; None if its working thread was not seen in Python."""
    working = working_thread(view)
    if working is None or not working.stack.frames:
        return None
    stack, location = working.stack, located(view, working)
    call, thread = _call(view, stack, location)
    seen, has_left_call = _progress(view, stack)
    if seen.sign == "stack_same" and location.kind in WORKS_ELSEWHERE:
        seen = ProgressSeen("unknown", "stack_same_child", seen.seconds)
    at_device = _is_at_device(view, stack, location)
    if call is not None and not call.is_teardown:
        return StackState(
            view, "inside", call, location, call.path, seen, thread=thread, at_device=at_device
        )
    activity = _activity(view, location, is_teardown=call is not None)
    path = path_of(stack.frames)
    return StackState(
        view, activity, call, location, path, seen, has_left_call, at_device=at_device
    )


def has_device(view: Rank) -> bool:
    """Whether anything shows that the rank uses a device; few stacks do, so it may anyway."""
    if view.gauges is not None and view.gauges.gpus:
        return True
    if any(is_of_device(group.backend) for group in view.groups.values()):
        return True
    return any(shows_device(thread.frames) for thread in view.threads) or any(
        _DEVICE_LIBRARIES.search(frame.file)
        for thread in native_threads(view)
        for frame in thread.frames
    )


def is_of_device(backend: str) -> bool:
    """Whether a group's backend, such as `cpu:gloo,cuda:nccl`, may have ops on devices."""
    parts = (part.partition(":") for part in backend.split(",") if part)
    return any(device != "cpu" and not _ON_HOST.fullmatch(name or device)
               for device, _, name in parts)  # fmt: skip


def _is_at_device(view: Rank, working: wire.ThreadStack, location: StackLocation) -> bool:
    """Whether the working thread waits for its device, by its lines or its C frames."""
    if location.kind == "device" or waits_for_device(working.frames):
        return True
    if any(_DEVICE_LIBRARIES.search(frame.file) for frame in native_leaf(view, working)):
        return True
    others = (thread for thread in view.threads if thread is not working)
    return location.kind == "lock" and any(waits_for_device(one.frames) for one in others)


def _activity(view: Rank, location: StackLocation, *, is_teardown: bool) -> Activity:
    holder, working = gil_holder(view), working_stack(view)
    # Asleep in C code that did not release the GIL.
    if is_teardown or (holder is not None and not holder.active and holder.frames):
        return "away"
    if location.kind == "rpc" or (working is not None and serves_rpc(working.frames)):
        return "unclear"  # another rank may keep it waiting
    if location.sure and location.kind not in OP_WAITS | {"computing", "unknown"}:
        return "away"
    awake = working is not None and (working.active or working.owns_gil)
    running = awake or location.kind in ("computing", "backward", "device")
    return "running" if running else "unclear"


def _call(
    view: Rank, working: wire.ThreadStack, location: StackLocation
) -> tuple[C10dCall | None, str]:
    """The call of the working thread, or of a thread it waits for, such as a checkpoint's."""
    call = call_of(working)
    if call is None and location.kind == "collective" and not working.active:
        call = wait_in_c(working.frames)
    if call is not None or location.kind != "lock":
        return call, ""
    for other in awaited_threads(view):
        found = call_of(other)
        if found is not None and found.role != "implicit":
            return found, other.name or f"thread {other.tid}"
    return None, ""


def _progress(view: Rank, working: wire.ThreadStack) -> tuple[ProgressSeen, bool]:
    """Whether the working thread moved between two dumps, and whether it left a call."""
    new, old, before = view.snapshot, view.prior_snapshot, prior_working_stack(view)
    if new is None or old is None or before is None:
        return ProgressSeen("unknown", "stacks_once"), False
    seconds = (new.at_ns - old.at_ns) / 1e9
    moved = _kind(before) != _kind(working) or paths_differ(_steps(before), _steps(working))
    if moved is None:
        return ProgressSeen("unknown", "stack_lines_unknown", seconds), False
    if moved:
        return ProgressSeen("active", "stack_moved", seconds), call_of(before) is not None
    if new.at_ns - old.at_ns < COMPARABLE_NS:
        return ProgressSeen("unknown", "stacks_too_close", seconds), False
    if working.active and call_of(working) is None:  # it computes, or a wait in C is busy
        return ProgressSeen("unknown", "stack_runs", seconds), False
    return ProgressSeen("none", "stack_same", seconds), False


def _kind(working: wire.ThreadStack) -> str:
    """The kind of its call, by torch's own functions: not every dump has variables and texts."""
    call = call_of(working)
    named = call is not None and (call.role != "implicit" or waits_for_device(working.frames))
    return call.kind if call is not None and named else ""


def _steps(working: wire.ThreadStack) -> StackPath:
    call = call_of(working)
    return call.steps if call is not None else path_of(working.frames)

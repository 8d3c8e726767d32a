"""Whether a rank may be in an unobserved wait: in a transport past c10d, or behind a full queue.

What a rank issues in such a transport is not known, nor when its peers arrive. A wait for a device,
or an unknown C call, may be for them, so such a rank is neither to blame nor healthy. Only a place
that cannot be a transport's wait is a cause of its own: a stopped process, a sleep, a lock, a file,
a child.
"""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

from frtop_probe import wire
from frtop_tui.diagnosis.evidence.c10d_call import call_of, path_of, paths_differ
from frtop_tui.diagnosis.evidence.rank_activity import (
    current_fetch,
    gil_holder,
    working_location,
)
from frtop_tui.diagnosis.evidence.stack_location import StackLocation, locate
from frtop_tui.diagnosis.evidence.stack_state import is_of_device
from frtop_tui.diagnosis.evidence.working_thread import (
    awaited_threads,
    prior_working_stack,
    working_process,
    working_stack,
)
from frtop_tui.job.model import Rank

_OWN_FILES: Final = re.compile(
    r"/(vllm|sglang/srt)/distributed/(device_communicators/|parallel_state\.py$)"
    r"|/(deep_ep|pplx_kernels|mscclpp|nvshmem|flashinfer/comm)/"
    r"|/torch/distributed/_symmetric_memory/|/aiter/dist/"
    r"|/transformer_engine/pytorch/(module|cpp_extensions)/"
)
"""Code of transports: whatever a frame inside it waits for belongs to the transport."""
_INNERMOST: Final = 4
"""Innermost frames in which such a file counts: further out, it called something else."""
_DEVICES: Final = "/dev/"
_SHARED_MEMORY: Final = "/dev/shm/"  # noqa: S108 - read, never made
_STATES: Final = frozenset({"stopped", "dead", "done", "unreachable"})
_OPEN: Final = frozenset({"device", "backward", "unknown"})
"""Places, known from stacks, where a rank may wait for a transport."""
_OWN_LOOPS: Final = frozenset({"sleeping", "lock", "socket", "computing", "collective"})
"""How a transport's own Python code waits for its peers."""
_BY_KERNEL: Final = frozenset({"lock", "unknown", "sleeping", "socket", "computing", "idle"})
"""C calls that only the kernel shows, and that may be in a transport."""


class UnobservedWait(Struct, frozen=True):
    """Where a rank waits, perhaps for an unobserved transport.

    `thread` is the thread there, if the working thread waits for another one; else "".
    """

    location: StackLocation
    thread: str = ""


def unobserved_wait(view: Rank) -> UnobservedWait | None:
    """The wait; None if there is no such transport, or the rank is away for a definite cause.

    Not for ranks that are blocked in an op of c10d: what blocks those is known.
    """
    if _has_cause(view):
        return None
    if view.evidence.has_transports:
        return _at_full_queue(view)
    location = working_location(view) or locate(None, working_process(view))
    if not location.sure:
        at_device = location.kind == "file_io" and not _is_at_path(view.process)
        return UnobservedWait(location) if location.kind in _BY_KERNEL or at_device else None
    if location.kind == "lock" and not _is_own(working_stack(view)):
        return _of_another_thread(view)
    return UnobservedWait(location) if _may_be(view, location) else None


def _at_full_queue(view: Rank) -> UnobservedWait | None:
    """The place of a rank whose device queue may be full, if its ops there are not known.

    Behind a full queue, a host stops in C at whatever it launches next, at any line.
    """
    issued = (*view.pending, *view.last_ops)
    if not any(not op.tracked and _is_on_device(view, op) for op in issued):
        return None
    location = working_location(view)
    if location is None or location.kind != "computing" or not runs_in_c(view):
        return None
    before, now = prior_working_stack(view), working_stack(view)
    paths = [path_of(stack.frames) for stack in (before, now) if stack is not None]
    moves = len(paths) == 2 and paths_differ(*paths)
    return None if moves else UnobservedWait(location)


def _is_on_device(view: Rank, op: wire.Op) -> bool:
    group = view.groups.get(op.group)
    return group is not None and is_of_device(group.backend)


def _has_cause(view: Rank) -> bool:
    """Whether its state, its DataLoader or another thread with the GIL keeps it away."""
    if view.state in _STATES or current_fetch(view) is not None:
        return True
    holder = gil_holder(view)
    return view.state == "silent" and holder is not None and holder is not working_stack(view)


def _may_be(view: Rank, location: StackLocation) -> bool:
    """Whether a place of the working thread, known from its stack, may be in a transport."""
    if location.kind in _OPEN or (location.kind in _OWN_LOOPS and _is_own(working_stack(view))):
        return True
    if location.kind == "computing":
        return view.state == "silent" or runs_in_c(view)
    return location.kind == "collective" and not view.pending and _is_unnamed(working_stack(view))


def _is_at_path(process: wire.Process | None) -> bool:
    """Whether the kernel names a file; in a driver, state D is at a device or at nothing."""
    return process is not None and process.file.startswith("/") and not _is_device(process.file)


def _is_device(path: str) -> bool:
    return path.startswith(_DEVICES) and not path.startswith(_SHARED_MEMORY)


def _is_own(stack: wire.ThreadStack | None) -> bool:
    return stack is not None and any(
        _OWN_FILES.search(frame.file) for frame in stack.frames[:_INNERMOST]
    )


def runs_in_c(view: Rank) -> bool:
    """Whether the working thread ran without the GIL, so in C code, in both dumps."""
    stacks = (working_stack(view), prior_working_stack(view))
    return not any(stack is not None and stack.owns_gil for stack in stacks)


def _is_unnamed(stack: wire.ThreadStack | None) -> bool:
    """Whether only the text of a line shows that it waits for an op."""
    call = call_of(stack) if stack is not None else None
    return call is None or call.role == "implicit"


def _of_another_thread(view: Rank) -> UnobservedWait | None:
    """The wait of another thread that the working one may wait for."""
    for thread in awaited_threads(view):
        location = locate(thread)
        spins = location.kind == "computing" and thread.active and not thread.owns_gil
        if location.kind == "device" or spins or _is_own(thread):
            return UnobservedWait(location, thread.name or f"thread {thread.tid}")
    return None

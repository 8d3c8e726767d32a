"""Why a rank has not entered an op, by the most reliable sign.

A new cause begins in `diagnosis/causes.py`, with its sentence and next step.
"""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from frtop_probe import wire
from frtop_tui.diagnosis.causes import CAUSES, LOCATIONS, Cause, Layer
from frtop_tui.diagnosis.evidence.dataloader_worker import WorkerStack, worker_of, worker_stack
from frtop_tui.diagnosis.evidence.program_end import program_end
from frtop_tui.diagnosis.evidence.rank_activity import (
    current_fetch,
    gil_holder,
    working_location,
)
from frtop_tui.diagnosis.evidence.rpc_call import is_handler
from frtop_tui.diagnosis.evidence.stack_location import (
    QUEUE_GET,
    StackLocation,
    function_name,
    locate,
)
from frtop_tui.diagnosis.evidence.working_thread import (
    ThreadChain,
    kernel_view,
    thread_chain,
    working_process,
    working_stack,
)
from frtop_tui.job.model import Rank

LOADS_ITSELF: Final = -2
"""`wire.DataLoaderFetch.worker` of a rank without DataLoader workers."""


class BatchWait(Struct, frozen=True):
    """What a rank waits for in its DataLoader, as far as known."""

    fetch: wire.DataLoaderFetch | None = None  # None if only the stack shows the wait
    worker: wire.Process | None = None
    worker_stack: WorkerStack | None = None

    @property
    def loads_itself(self) -> bool:
        return self.fetch is not None and self.fetch.worker == LOADS_ITSELF

    @property
    def worker_is_forking(self) -> bool:
        return self.worker_stack is not None and self.worker_stack.is_forking


class AbsenceCause(Struct, frozen=True):
    """Why a rank is absent from an op, and the facts that show it."""

    cause: Cause
    layer: Layer
    location: StackLocation | None = None  # of the working thread, or of the end of `chain`
    gil_holder: wire.ThreadStack | None = None  # only with the cause "gil"
    batch: BatchWait | None = None  # only with the cause "dataloader"
    chain: ThreadChain | None = None  # of threads that wait for each other


UNKNOWN: Final = AbsenceCause("unknown", "unknown")


def absence_cause(view: Rank) -> AbsenceCause:
    """Why a living rank that is not blocked in an op is absent."""
    if is_unseen_dump(view):
        return UNKNOWN
    if wire.LEFT_GROUPS in view.notes or _leaves_groups(view):
        return AbsenceCause("out_of_loop", "software")
    return doing(view)


def doing(view: Rank) -> AbsenceCause:
    """What a living rank does, wherever the others are."""
    return _stopped(view) or _gil_held(view) or _loading(view) or _located(view) or UNKNOWN


def is_unseen_dump(view: Rank) -> bool:
    """Whether only a Flight Recorder dump is known, which shows nothing but ops."""
    return not (view.evidence.has_process or view.evidence.has_stacks)


def _leaves_groups(view: Rank) -> bool:
    end = program_end(view)
    return end is not None and end.stage == "groups"


def _stopped(view: Rank) -> AbsenceCause | None:
    stopped = view.process is not None and view.process.state in ("T", "t")
    return AbsenceCause("stopped", "software") if stopped else None


def _gil_held(view: Rank) -> AbsenceCause | None:
    holder = gil_holder(view)
    # Without a heartbeat, only a sleeping holder shows it: running Python code holds the GIL, too.
    asleep = view.status is None and holder is not None and not holder.active
    if view.state != "silent" and not asleep:
        return None
    return AbsenceCause("gil", "software", gil_holder=holder)


def _loading(view: Rank) -> AbsenceCause | None:
    location, fetch = working_location(view), current_fetch(view)
    if fetch is None and (location is None or location.kind != "dataloader"):
        return None
    if location is not None and location.sure and location.kind not in ("dataloader", "lock"):
        return None  # another thread fetches: it loads batches ahead
    worker = worker_of(view)
    stack = worker_stack(view, worker) if worker is not None else None
    batch = BatchWait(fetch, worker, stack)
    software = batch.worker_is_forking and not batch.loads_itself
    return AbsenceCause("dataloader", "software" if software else "data", location, batch=batch)


def _located(view: Rank) -> AbsenceCause | None:
    """The cause by the working thread's stack, else by the kernel."""
    seen = working_location(view)
    location, chain = seen or locate(None, working_process(view)), None
    if location.kind == "lock" and _awaits_work(view):
        location = replace(location, kind="idle")
    elif seen is not None and seen.kind in _FOR_THREADS:
        chain = thread_chain(view)
        if chain is not None and chain.end is not None and not chain.is_deadlock:
            location = locate(chain.end, kernel_view(view, chain.end))
    return _cause_at(location, chain)


def ending_cause(view: Rank) -> AbsenceCause:
    """Why a rank's process does not end after its program: what its thread waits for."""
    end = program_end(view)
    threads = end.threads if end is not None else ()
    awaited = _cause_at(threads[0].location) if len(threads) == 1 else None
    return awaited or doing(view)


def _cause_at(location: StackLocation, chain: ThreadChain | None = None) -> AbsenceCause | None:
    if location.kind == "unknown" and not location.line:
        return None
    cause = LOCATIONS[location.kind].cause
    return AbsenceCause(cause, CAUSES[cause].layer, location, chain=chain)


_FOR_THREADS: Final = frozenset({"lock", "pipe", "unknown"})
"""Places where a thread may wait for another one or for a child."""


_QUEUES: Final = re.compile(r"/(queue|multiprocess(?:ing)?/queues|asyncio/queues)\.py$")
_QUEUE_FRAMES: Final = 3
"""A queue's `get` is at most two calls (a condition's `wait`) outside the innermost frame."""
_WORKING: Final = frozenset(
    ["backward", "collective", "compiling", "dataloader", "device", "file_io", "file_lock"]
)
"""If another thread is at such a place, the working one may wait for it: it may not be idle."""


def _awaits_work(view: Rank) -> bool:
    """Whether a server is idle: its thread is at a queue, another one serves, and none works."""
    working = working_stack(view)
    if working is None or is_handler(working) or not _is_at_queue(working):
        return False
    kinds = {
        locate(thread, kernel_view(view, thread)).kind
        for thread in view.threads
        if thread.frames and thread is not working and thread.tid != view.identity.recorder_tid
    }
    return "idle" in kinds and kinds.isdisjoint(_WORKING)


def _is_at_queue(stack: wire.ThreadStack) -> bool:
    """Whether a thread waits for the next item of a queue, in Python or in C."""
    for frame in stack.frames[:_QUEUE_FRAMES]:
        if _QUEUES.search(frame.file):
            return function_name(frame) == "get"
    return bool(stack.frames and QUEUE_GET.search(stack.frames[0].source))

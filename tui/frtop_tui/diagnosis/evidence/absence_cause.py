"""Why a rank has not entered an op, by the most reliable sign that there is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from frtop_probe import wire
from frtop_tui.diagnosis.evidence.dataloader_worker import WorkerStack, worker_of, worker_stack
from frtop_tui.diagnosis.evidence.idle_server import awaits_work
from frtop_tui.diagnosis.evidence.rank_activity import is_fetching, main_thread_location
from frtop_tui.diagnosis.evidence.stack_location import LocationKind, StackLocation, locate
from frtop_tui.diagnosis.model import Layer
from frtop_tui.job.model import Rank

LOADS_ITSELF: Final = -2
"""`wire.DataLoaderFetch.worker` of a rank without DataLoader workers."""


class BatchWait(Struct, frozen=True):
    """What a rank waits for in its DataLoader.

    Attributes:
        fetch: the fetch that it is inside of, None if only its stack shows the wait.
        last_fetch: the last fetch it began, None if none is known.
        worker: the worker process that it waits for, None if not known.
        worker_stack: what that worker does, None if its stack is not known.
    """

    fetch: wire.DataLoaderFetch | None = None
    last_fetch: wire.DataLoaderFetch | None = None
    worker: wire.Process | None = None
    worker_stack: WorkerStack | None = None

    @property
    def loads_itself(self) -> bool:
        return self.fetch is not None and self.fetch.worker == LOADS_ITSELF

    @property
    def worker_is_forking(self) -> bool:
        return self.worker_stack is not None and self.worker_stack.is_forking


class AbsenceCause(Struct, frozen=True):
    """Why a rank is absent from an op, and the facts that show it.

    Attributes:
        cause: a stable word, as in `Why.cause`.
        layer: where to look for the cause.
        location: where the main thread is, None if nothing shows it.
        gil_holder: the thread that holds the GIL; only with the cause "gil".
        batch: what the DataLoader waits for; only with the cause "dataloader".
    """

    cause: str
    layer: Layer
    location: StackLocation | None = None
    gil_holder: wire.ThreadStack | None = None
    batch: BatchWait | None = None


UNKNOWN: Final = AbsenceCause("unknown", "unknown")
NEVER_JOINED: Final = AbsenceCause("never_joined", "unknown")
"""Of ranks of the world that no agent has ever reported."""


def absence_cause(view: Rank) -> AbsenceCause:
    """Why a rank is absent that is alive and not blocked in an op."""
    if is_unseen_dump(view):
        return UNKNOWN
    found = (cause for sign in _SIGNS if (cause := sign(view)) is not None)
    return next(found, UNKNOWN)


def is_unseen_dump(view: Rank) -> bool:
    """Whether only a Flight Recorder dump is known: it shows ops, and nothing else of a rank."""
    return not (view.evidence.has_process or view.evidence.has_stacks)


def _stopped(view: Rank) -> AbsenceCause | None:
    process = view.process
    if process is None or process.state not in ("T", "t"):
        return None
    return AbsenceCause("stopped", "software")


def _gil_held(view: Rank) -> AbsenceCause | None:
    holder = next((thread for thread in view.threads if thread.owns_gil), None)
    # Without a beat only a sleeping holder shows it: running Python code holds the GIL, too.
    asleep = view.status is None and holder is not None and not holder.active
    if view.state != "silent" and not asleep:
        return None
    return AbsenceCause("gil", "software", gil_holder=holder)


def _loading(view: Rank) -> AbsenceCause | None:
    last_fetch = view.status.fetch if view.status is not None else None
    location = main_thread_location(view)
    fetch = last_fetch if is_fetching(view) else None
    if fetch is None and (location is None or location.kind != "dataloader"):
        return None
    if location is not None and location.sure and location.kind not in ("dataloader", "lock"):
        return None  # another thread fetches: it loads batches ahead
    worker = worker_of(view)
    stack = worker_stack(view, worker) if worker is not None else None
    batch = BatchWait(fetch, last_fetch, worker, stack)
    software = batch.worker_is_forking and not batch.loads_itself
    return AbsenceCause("dataloader", "software" if software else "data", location, batch=batch)


def _located(view: Rank) -> AbsenceCause | None:
    """By the main thread's stack, else by what the kernel shows."""
    location = main_thread_location(view) or locate(None, view.process)
    if location.kind == "lock" and awaits_work(view):
        location = replace(location, kind="idle")
    if location.kind == "unknown" and not location.line:
        return None
    cause, layer = _CAUSES[location.kind]
    return AbsenceCause(cause, layer, location)


_SIGNS: Final[tuple[Callable[[Rank], AbsenceCause | None], ...]] = (
    _stopped,
    _gil_held,
    _loading,
    _located,
)
_CAUSES: Final[dict[LocationKind, tuple[str, Layer]]] = {
    "collective": ("other_group", "software"),
    "backward": ("computing", "software"),
    "device": ("device", "device"),
    "store": ("rendezvous", "network"),
    "dataloader": ("dataloader", "data"),
    "file_io": ("file_io", "data"),
    "file_lock": ("lock", "software"),
    "sleeping": ("sleeping", "software"),
    "lock": ("lock", "software"),
    "socket": ("socket", "network"),
    "idle": ("idle", "software"),
    "child": ("subprocess", "software"),
    "pipe": ("pipe", "software"),
    "input": ("input", "software"),
    "key": ("store", "software"),
    "compiling": ("compiling", "software"),
    "importing": ("computing", "software"),
    "computing": ("computing", "software"),
    "unknown": ("unknown", "unknown"),
}

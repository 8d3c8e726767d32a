"""What one rank does, by its stacks alone: inside a collective, away from it, or unclear."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from frtop_probe import wire
from frtop_tui.diagnosis import places
from frtop_tui.diagnosis.calls import Call, call_of, differ, path_of
from frtop_tui.diagnosis.judged import Progress
from frtop_tui.diagnosis.places import Place
from frtop_tui.job.model import Rank
from frtop_tui.job.record import COMPARABLE_NS

Doing = Literal[
    "inside",  # of a call of torch.distributed, or of a wait for an op
    "away",  # in none, at a place where one may be for long
    "running",  # in none, and Python or C code of it runs
    "unclear",  # asleep in a C call of which the stack does not tell what it waits for
]
_LONG: Final = frozenset(
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


@dataclass(frozen=True, slots=True)
class Stand:
    """One rank. `left` says that an earlier dump still had it inside a call."""

    view: Rank
    doing: Doing
    call: Call | None
    place: Place
    path: tuple[tuple[str, str, int], ...]
    progress: Progress
    shown: str  # what shows the progress
    left: bool = False
    thread: str = ""  # which one is inside, if not the main one

    @property
    def rank(self) -> int:
        return self.view.rank


def stand_of(view: Rank) -> Stand | None:
    """What the rank does; None if no thread of it was seen in Python."""
    main = view.main_stack
    if main is None or not main.frames:
        return None
    call, thread = _call(main, view.threads)
    place = places.classify(main, view.process)
    progress, shown, left = _progress(view, main)
    if call is not None and not call.leaves:
        return Stand(view, "inside", call, place, call.path, progress, shown, thread=thread)
    doing = _doing(view, place, leaves=call is not None)
    return Stand(view, doing, call, place, path_of(main.frames), progress, shown, left)


def gil_holder(threads: tuple[wire.ThreadStack, ...]) -> wire.ThreadStack | None:
    """The thread that sleeps with the GIL in its hands: in C code that did not let it go."""
    return next((t for t in threads if t.owns_gil and not t.active and t.frames), None)


def _doing(view: Rank, place: Place, *, leaves: bool) -> Doing:
    if leaves or gil_holder(view.threads) is not None:
        return "away"
    if place.kind in _LONG and place.sure:
        return "away"
    main = view.main_stack
    awake = main is not None and (main.active or main.owns_gil)
    return "running" if awake or place.kind in _RUNNING else "unclear"


def _call(main: wire.ThreadStack, threads: tuple[wire.ThreadStack, ...]) -> tuple[Call | None, str]:
    """The main thread's call, or that of a thread which it waits for: a checkpoint's, say."""
    call = call_of(main)
    if call is not None or places.classify(main).kind != "lock":
        return call, ""
    for other in threads:
        found = call_of(other) if other is not main else None
        if found is not None and found.role != "implicit":
            return found, other.name or f"thread {other.tid}"
    return None, ""


def _progress(view: Rank, main: wire.ThreadStack) -> tuple[Progress, str, bool]:
    new, old = view.snapshot, view.prior_snapshot
    before = view.prior_stack
    if new is None or old is None or before is None:
        return "unknown", "stacks were taken once: whether it moves they do not tell", False
    seconds = (new.at_ns - old.at_ns) / 1e9
    apart = f"in two dumps, {seconds:.1f}s apart"
    moved = differ(_steps(before), _steps(main))
    if moved is None:
        return "unknown", f"not all lines of its stack are known {apart}", False
    if moved:
        return "active", f"its stack is another one {apart}", call_of(before) is not None
    if new.at_ns - old.at_ns < COMPARABLE_NS:
        return "unknown", f"its stack is the same {apart}: too near to say anything", False
    if main.active and call_of(main) is None:  # who waits in a call may do so busily
        return "active", f"it runs, at the same lines {apart}", False
    return "none", f"its stack is the same {apart}", False


def _steps(main: wire.ThreadStack) -> tuple[tuple[str, str, int], ...]:
    call = call_of(main)
    return call.steps if call is not None else path_of(main.frames)

"""Ops whose results are to be sampled at their end, and which of them may be read now.

What Python waits for is read after the wait. What C++ waits for (DDP's reducer, what DDP broadcasts
before a forward, functional collectives) is over when the backward ends, or a step begins.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, Final

from frtop_probe.features.tensor_checks.in_rank.stats import Sample

MOST_UNFINISHED: Final = 64
"""Ops whose end is waited for; each keeps its tensors alive."""
FORGET_NS: Final = 5_000_000_000
"""After this time the result of an op that is complete, and that nobody was seen to wait for, is
given up."""
_FRAMES: Final = 40
"""Frames that are searched for the call of a backward."""


@dataclass(slots=True)
class WatchedOp:
    """An op that is being watched: its result is read at its end."""

    sample: Sample
    tensors: list[Any]
    sync: bool
    """Its caller waits for it at once, so that nothing of the program runs before."""
    in_backward: bool
    begun_ns: int
    work: Any = None


class WatchedOps:
    """Used by several threads: each step is one atomic operation on a dict."""

    def __init__(self) -> None:
        self.by_handle: dict[int, WatchedOp] = {}
        """By `id` of their handles, which they keep alive."""
        self.unseen = 0
        """Ops whose result was given up."""

    def add(self, op: WatchedOp, work: Any) -> None:
        """Takes an op with the handle that its call returned; gives up the oldest for it."""
        op.work = work
        while len(self.by_handle) >= MOST_UNFINISHED:
            self.by_handle.pop(next(iter(self.by_handle)), None)
            self.unseen += 1
        self.by_handle[id(work)] = op

    def take_complete(self, step: int) -> list[WatchedOp]:
        """Takes the ops of this step that are over, where no later one has written to their memory.

        Those of earlier backwards are given up: the next one may have written there.
        """
        found: list[WatchedOp] = []
        places: set[int] = set()
        for key, op in reversed(list(self.by_handle.items())):
            now = op.sample.step == step
            if op.sync or not (now or op.in_backward):
                continue  # a wait in Python is to come, after which it is read
            place = id(op.work) if not op.tensors else int(op.tensors[0].data_ptr())
            if now and not _is_done(op.work):
                places.add(place)
                continue
            if self.by_handle.pop(key, None) is None:
                continue
            if now and place not in places:
                found.append(op)
            else:
                self.unseen += 1
            places.add(place)
        return found[::-1]

    def forget_old(self, now_ns: int) -> None:
        """Gives up what was complete long ago."""
        for key, op in list(self.by_handle.items()):
            old = now_ns - op.begun_ns > FORGET_NS
            if old and not op.in_backward and op.work.is_completed():
                self.by_handle.pop(key, None)
                self.unseen += 1

    def give_up(self) -> None:
        """Gives up all of them."""
        self.unseen += len(self.by_handle)
        self.by_handle.clear()


def _is_done(work: Any) -> bool:
    """Whether an op is over. Its future is done first, and DDP waits for that alone."""
    if work.is_completed():
        return True
    try:
        return bool(work.get_future().done())
    except RuntimeError:  # not every handle has one
        return False


def in_backward(depth: int) -> bool:
    """Whether a backward runs in this thread, as when DDP issues an op.

    Args:
        depth: how many frames above the caller's to begin at.
    """
    frame = sys._getframe(depth + 1)  # noqa: SLF001
    for _ in range(_FRAMES):
        if frame is None:
            return False
        if frame.f_code.co_name == "_engine_run_backward":
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False

"""Keeps ops whose results will be sampled, and finds those that are readable now.

If Python waits for an op, its result is read after the wait. If C++ waits (DDP's reducer, DDP's
broadcasts before a forward, functional collectives), it is complete when the backward ends or a
step begins.

The handle of a message is held only until its caller must have it: dropping it may withdraw the
message, and that must stay as it is.
"""

from __future__ import annotations

import sys
import weakref
from dataclasses import dataclass
from typing import Any, Final

from frtop_probe.features.tensor_checks.in_rank.stats import Sample
from frtop_probe.recorder.ops.pending import HANDED_OVER_NS

MOST_UNFINISHED: Final = 64
"""Most unfinished ops; each keeps its tensors alive."""
FORGET_NS: Final = 5_000_000_000
"""After this time without a visible wait, the result of a complete op is given up."""
_FRAMES: Final = 40
"""Most frames to search for the call of a backward."""


@dataclass(slots=True)
class WatchedOp:
    """An op that is being watched: its result is read at its end."""

    sample: Sample
    tensors: list[Any]
    sync: bool
    """Whether its caller waits at once, so that the program runs nothing in between."""
    in_backward: bool
    begun_ns: int
    work: Any = None
    p2p: bool = False
    handle: weakref.ref[Any] | None = None
    """Of a message, in place of `work`, once its caller has the handle."""


class WatchedOps:
    """Used by several threads: each step is one atomic operation on a dict."""

    def __init__(self) -> None:
        self.by_handle: dict[int, WatchedOp] = {}
        """By `id` of the handle, which the op keeps alive."""
        self.unseen = 0
        """Number of ops whose result was given up."""

    def add(self, op: WatchedOp, work: Any) -> None:
        """Adds an op with the handle that its call returned; may give up the oldest one for it."""
        op.work = work
        while len(self.by_handle) >= MOST_UNFINISHED:
            self._give_up(next(iter(self.by_handle)))
        self.by_handle[id(work)] = op

    def _give_up(self, key: int) -> None:
        op = self.by_handle.pop(key, None)
        if op is not None and op.sample.role != "sent":  # what was sent was read at its issue
            self.unseen += 1

    def take_complete(self, step: int) -> list[WatchedOp]:
        """Takes the complete ops of this step whose memory no later op has written to.

        Those of earlier backwards are given up: the next one may have written there.
        """
        found: list[WatchedOp] = []
        places: set[int] = set()
        for key, op in reversed(list(self.by_handle.items())):
            now = op.sample.step == step
            if op.p2p or op.sync or not (now or op.in_backward):
                continue  # a wait in Python will read it
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
        """Gives up ops that completed long ago, and lets go of handles of messages."""
        for key, op in list(self.by_handle.items()):
            age = now_ns - op.begun_ns
            if op.p2p:
                if age > HANDED_OVER_NS and op.handle is None:
                    self._release(key, op)
                if age > FORGET_NS and op.sample.role == "sent":
                    self._give_up(key)
            elif age > FORGET_NS and not op.in_backward and op.work.is_completed():
                self._give_up(key)

    def _release(self, key: int, op: WatchedOp) -> None:
        """From here on, the op and its tensors live as long as the program's handle."""

        def dropped(_: object) -> None:  # before another handle can have its `id`
            self._give_up(key)

        op.handle = weakref.ref(op.work, dropped)
        op.work = None

    def give_up(self) -> None:
        for key in list(self.by_handle):
            self._give_up(key)


def _is_done(work: Any) -> bool:
    """Returns whether an op is complete. Its future is done first, and DDP waits only for that."""
    if work.is_completed():
        return True
    try:
        return bool(work.get_future().done())
    except RuntimeError:  # not every handle has one
        return False


def in_backward(depth: int) -> bool:
    """Returns whether this thread runs a backward. Looks from `depth` frames above the caller's."""
    frame = sys._getframe(depth + 1)  # noqa: SLF001
    for _ in range(_FRAMES):
        if frame is None:
            return False
        if frame.f_code.co_name == "_engine_run_backward":
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False

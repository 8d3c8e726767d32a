"""Handles of ops that are pending, when something raises while they are gone through."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from frtop_probe.recorder import pending as module
from frtop_probe.recorder.pending import Pending
from frtop_probe.recorder.writer import Writer
from frtop_probe.ring import layout

MINE, OTHERS = 1, 2


class Work:
    def __init__(self, *, done: bool) -> None:
        self.done = done

    def is_completed(self) -> bool:
        return self.done

    def get_future(self) -> None:
        raise RuntimeError("none")


class World:
    """Two groups with the same ops, of every kind: complete and not, in every place."""

    def __init__(self, folder: Path) -> None:
        descriptor = os.open(folder / "ring", os.O_RDWR | os.O_CREAT)
        os.posix_fallocate(descriptor, 0, layout.SMALL.size)
        self.pending = pending = Pending(Writer(folder / "ring", descriptor, layout.SMALL))
        os.close(descriptor)
        self.works: list[Work] = []
        for group in (MINE, OTHERS):
            for done in (False, True):
                pending.queue.append(self._entry(group, done=done))
                pending.loose.append((self._entry(group, done=done), 2**62, 7))
                pending.waiting[len(self.works)] = list(self._entry(group, done=done))
                pending._weaken(self._entry(group, done=False), 1)

    def _entry(self, group: int, *, done: bool) -> Any:
        self.works.append(Work(done=done))
        sequence = len(self.works)
        self.pending.open[sequence] = group
        return self.works[-1], sequence, 1, 0, group, 0, (), None

    def go(self, what: str) -> None:
        if what == "reap":
            self.pending.reap()
        else:
            self.pending.let_go(MINE)

    @property
    def held(self) -> dict[int, int]:
        """Groups of ops that something can still be found out of, by sequence number."""
        pending = self.pending
        entries: list[Any] = [*pending.queue, *(loose[0] for loose in pending.loose)]
        entries += [entry for _, entry in pending._weak.values()]
        entries += [entry for entry in pending.waiting.values() if entry[0] is not None]
        return {entry[1]: entry[4] for entry in entries}


def raising(step: int) -> Callable[[FrameType, str, object], Any]:
    """A tracer that raises at that line of the module, as a signal handler may."""
    left = step

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal left
        if frame.f_code.co_filename != module.__file__:
            return None
        if event == "line":
            left -= 1
            if not left:
                raise TimeoutError
        return trace

    return trace


@pytest.mark.parametrize("what", ["reap", "let_go"])
def test_no_handle_is_lost_wherever_a_signal_handler_raises(tmp_path: Path, what: str) -> None:
    step, whole = 0, False
    while not whole:
        step += 1
        world = World(tmp_path)
        before = sys.gettrace()
        sys.settrace(raising(step))
        try:
            world.go(what)
            whole = True
        except TimeoutError:
            pass
        finally:
            sys.settrace(before)
        assert world.pending.open.keys() <= world.held.keys(), step
        world.go(what)
        assert world.held == world.pending.open, step
        assert set(world.held.values()) == ({OTHERS} if what == "let_go" else {MINE, OTHERS})
    assert step > 50

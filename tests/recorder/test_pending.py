"""Handles of pending ops, when a signal handler raises while they are tested."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from frtop_probe.recorder.ops import pending as module
from frtop_probe.recorder.ops import usual_waits
from frtop_probe.recorder.ops.pending import PendingOps
from frtop_probe.recorder.own_ring import OwnRing
from frtop_probe.ring import layout

MINE, OTHERS = 1, 2
TINY = layout.Shape(groups=4, sites=8, overflow=4, slots=32, chunks=32, marks=8, side=80 * 1024)
INTERRUPTED = (module.__file__, usual_waits.__file__)


class FakeWork:
    def __init__(self, *, done: bool) -> None:
        self.done = done

    def is_completed(self) -> bool:
        return self.done

    def get_future(self) -> None:
        raise RuntimeError("none")


class PendingScene:
    """Two groups with the same ops: complete and pending ones in every collection."""

    def __init__(self, folder: Path) -> None:
        descriptor = os.open(folder / "ring", os.O_RDWR | os.O_CREAT)
        os.posix_fallocate(descriptor, 0, TINY.longest)
        self.pending = pending = PendingOps(OwnRing(folder / "ring", descriptor, TINY))
        os.close(descriptor)
        self.works: list[FakeWork] = []
        for group in (MINE, OTHERS):
            for done in (False, True):
                entry = self._entry(group, done=done)
                pending.handles[id(entry[0])] = entry
                entry = self._entry(group, done=done)
                pending.to_weaken.append((entry, 2**62, 7))
                pending.silent_handles[id(entry[0])] = entry
                pending._weaken(self._entry(group, done=False), 1)

    def _entry(self, group: int, *, done: bool) -> Any:
        self.works.append(FakeWork(done=done))
        sequence = len(self.works)
        self.pending.open[sequence] = group
        return self.works[-1], sequence, 1, 0, group, 0, (), None

    def call(self, what: str) -> None:
        if what == "reap":
            self.pending.reap()
        else:
            self.pending.release(MINE)

    @property
    def reachable(self) -> dict[int, int]:
        """Groups of ops whose completion can still be found, by sequence number."""
        pending = self.pending
        entries: list[Any] = [*pending.handles.values(), *(item[0] for item in pending.to_weaken)]
        entries += [entry for _, entry in pending._weak.values()]
        return {entry[1]: entry[4] for entry in entries}


def raising(step: int) -> Callable[[FrameType, str, object], Any]:
    """Returns a tracer that raises at the given line event, as a signal handler may."""
    left = step

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal left
        if frame.f_code.co_filename not in INTERRUPTED:
            return None
        if event == "line":
            left -= 1
            if not left:
                raise TimeoutError
        return trace

    return trace


@pytest.mark.parametrize("what", ["reap", "release"])
def test_no_handle_is_lost_wherever_a_signal_handler_raises(tmp_path: Path, what: str) -> None:
    step, completed = 0, False
    while not completed:
        step += 1
        scene = PendingScene(tmp_path)
        before = sys.gettrace()
        sys.settrace(raising(step))
        try:
            scene.call(what)
            completed = True
        except TimeoutError:
            pass
        finally:
            sys.settrace(before)
        assert scene.pending.open.keys() <= scene.reachable.keys(), step
        scene.call(what)
        assert scene.reachable == scene.pending.open, step
        assert set(scene.reachable.values()) == ({OTHERS} if what == "release" else {MINE, OTHERS})
    assert step > 50

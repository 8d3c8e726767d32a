"""Installs and removes the recorder within one process, to compare the two side by side.

It is removed, not switched off: a kernel that is off still costs most of what it costs when it is
on, because torch turns the op's arguments into Python objects for it.
"""

from __future__ import annotations

from types import ModuleType

from frtop_probe.recorder.native.install import NativeHook
from frtop_probe.recorder.ops.kernel import OFF, ON
from frtop_probe.recorder.process.lifecycle import lifecycle


class RecorderSwitch:
    """Use it only while no thread issues ops: a kernel must not vanish under a running op."""

    def __init__(self, torch: ModuleType) -> None:
        """Starts the recorder. The default group must exist."""
        lifecycle.start()
        assert lifecycle.recorder is not None
        self._recorder = lifecycle.recorder
        assert self._recorder.hook is not None
        self._torch = torch
        self._kind = type(self._recorder.hook)

    def set(self, on: bool) -> None:
        """Installs kernels and wrappers and starts the thread, or undoes all that."""
        recorder = self._recorder
        if on and recorder.hook is None:
            recorder.hook = self._kind(recorder, recorder.signatures, self._torch)
            recorder.resume()
        elif not on and recorder.hook is not None:
            recorder.stop()
            recorder.hook.remove()
            recorder.hook = None

    @property
    def is_native(self) -> bool:
        return issubclass(self._kind, NativeHook)

    def enable(self, on: bool) -> None:
        """Switches the kernels, which stay. Kernels in Python cost half as much then."""
        self._recorder.enabled[0] = ON if on else OFF

    def issued(self) -> int:
        """Returns how many ops have been recorded so far."""
        return sum(sum(group.issued[1:]) for group in self._recorder.groups.known.values())

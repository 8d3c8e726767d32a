"""Installs and removes the recorder within one process, to compare the two side by side.

It is removed, not switched off: a kernel that is off still costs most of what it costs when it is
on, because torch turns the op's arguments into Python objects for it.
"""

from __future__ import annotations

import sys
from types import ModuleType

from frtop_probe.recorder.native.install import NativeHook
from frtop_probe.recorder.ops.kernel import OFF, ON, Hook
from frtop_probe.recorder.process.lifecycle import OPTIMIZERS, lifecycle


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
        optimizers = sys.modules[OPTIMIZERS]
        tables = optimizers._global_optimizer_pre_hooks, optimizers._global_optimizer_post_hooks  # noqa: SLF001
        self._hooks = [
            (table, key, hook)
            for table in tables
            for key, hook in list(table.items())
            if hook.__module__.startswith("frtop_probe.")
        ]
        assert len(self._hooks) == 2

    def set(self, on: bool) -> None:
        """Installs kernels and wrappers and starts the thread, or undoes all that."""
        recorder = self._recorder
        if on and recorder.hook is None:
            recorder.hook = self._make()
            recorder.resume()
        elif not on and recorder.hook is not None:
            recorder.stop()
            recorder.hook.remove()
            recorder.hook = None

    @property
    def is_native(self) -> bool:
        return issubclass(self._kind, NativeHook)

    def enable(self, on: bool) -> None:
        """Switches the kernels, which stay, and takes the optimizers' hooks away or puts them back.

        Kernels in Python cost half as much while they are off.
        """
        self._recorder.enabled[0] = self._recorder.alive[0] = ON if on else OFF
        for table, key, hook in self._hooks:
            if on:
                table[key] = hook
            else:
                table.pop(key, None)

    def _make(self) -> Hook | NativeHook:
        recorder = self._recorder
        if self.is_native:
            return NativeHook(recorder, recorder.signatures, recorder.steps, self._torch)
        return Hook(recorder, recorder.signatures, self._torch)

    def issued(self) -> int:
        """Returns how many ops have been recorded so far."""
        return sum(sum(group.issued[1:]) for group in self._recorder.groups.known.values())

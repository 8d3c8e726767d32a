"""Reads the memory of tensors that the program goes on using, without harm to either.

A plain load from memory that is being freed, or whose file was cut short, is a signal
that kills the job. The kernel, asked for the same bytes through `/proc/self/mem`, answers
with an error instead, and the program's threads go on while it copies. What it copied
counts only if op and memory were still the same afterwards.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from frtop_probe.recorder.carried import Carried, Held
from frtop_probe.recorder.owned import Owned
from frtop_probe.recorder.pending import Pending
from frtop_probe.recorder.placement import GONE, Place, Unread, own, place

OWN_MEMORY: Final = "/proc/self/mem"


class Reader:
    """Open for one request only: a forked child must not keep a way into its parent.

    `go_on` is called between pieces: false when nobody waits for the answer any more.
    """

    def __init__(self, torch: Any, pending: Pending, go_on: Callable[[], bool]) -> None:
        self._torch = torch
        self._pending = pending
        self.go_on = go_on
        try:
            memory = Owned(os.open(OWN_MEMORY, os.O_RDONLY | os.O_CLOEXEC))
        except OSError:
            memory = None
        self._memory = memory

    def close(self) -> None:
        memory, self._memory = self._memory, None
        if memory is not None:
            memory.close()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Closes at the end; until then torch does plainly what it is asked to."""
        torch = self._torch
        try:
            with torch.no_grad(), torch._C.DisableTorchFunctionSubclass():  # noqa: SLF001
                yield
        finally:
            self.close()

    def place(self, held: Held, *, in_order: bool = False) -> Place:
        """Raises `Unread` like `placement.place`. Keeps nothing of the tensor."""
        return place(self._torch, own(self._torch, held), in_order=in_order)

    def read(self, op: Carried, held: Held, at: Place, offset: int, into: memoryview) -> None:
        """One piece of the tensor's bytes.

        Raises:
            Unread: what was copied need not be the tensor's, or no more what is pending.
        """
        memory = self._memory
        if memory is None or not memory.held:
            raise Unread("the kernel does not let this process read its own memory")
        if not self._same(op, held, at):
            raise Unread(GONE)
        try:
            whole = os.preadv(memory.number, [into], at.address + offset) == len(into)
        except (OSError, OverflowError):
            whole = False
        if not (whole and self._same(op, held, at)):
            raise Unread(GONE)

    def confirm(self, op: Carried) -> None:
        """Raises `Unread` when the op has completed by now: what was read may be its result."""
        self._pending.reap()
        if op.sequence not in self._pending.open:
            raise Unread(GONE)

    def _same(self, op: Carried, held: Held, at: Place) -> bool:
        try:
            return op.sequence in self._pending.open and self.place(held) == at
        except Unread:
            return False

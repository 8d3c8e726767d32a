"""Reads the memory of tensors that the program is still using, without harm to the program.

A plain load from memory that is being freed, or whose file was truncated, raises a signal that
kills the job. A read of `/proc/self/mem` returns an error instead, and other threads continue while
the kernel copies. The copy counts only if op and memory are unchanged after it.

`device_tensors` reads the memory of devices. It may be unknown whether an op on a device is still
pending: then the copy counts unless the op is known to be complete.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from frtop_probe.recorder.descriptors import OwnedDescriptor
from frtop_probe.recorder.ops.pending import PendingOps
from frtop_probe.recorder.ops.tensor_refs import OpTensorRefs, TensorRef
from frtop_probe.recorder.tensors.device_tensors import DeviceChunks
from frtop_probe.recorder.tensors.tensor_memory import (
    GONE,
    MemoryRange,
    UnreadableTensor,
    local_tensor,
    locate,
)

OWN_MEMORY: Final = "/proc/self/mem"


class MemoryReader:
    """Open for one request only: a forked child must not keep access to its parent's memory.

    Callers call `go_on` between pieces; it is false if the client has left.
    """

    def __init__(
        self, torch: Any, pending: PendingOps, chunks: DeviceChunks, go_on: Callable[[], bool]
    ) -> None:
        self._torch = torch
        self._pending = pending
        self._chunks = chunks
        self.go_on = go_on
        try:
            memory = OwnedDescriptor(os.open(OWN_MEMORY, os.O_RDONLY | os.O_CLOEXEC))
        except OSError:
            memory = None
        self._memory = memory

    def close(self) -> None:
        memory, self._memory = self._memory, None
        if memory is not None:
            memory.close()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Disables the program's torch modes while reading; closes the reader at the end."""
        torch = self._torch
        try:
            with torch.no_grad(), torch._C.DisableTorchFunctionSubclass():  # noqa: SLF001
                yield
        finally:
            self.close()

    def locate(self, ref: TensorRef, *, in_order: bool = False) -> MemoryRange:
        """Calls `tensor_memory.locate`, with its errors. Keeps no reference to the tensor."""
        return locate(self._torch, local_tensor(self._torch, ref), in_order=in_order)

    def read(
        self, op: OpTensorRefs, ref: TensorRef, memory: MemoryRange, offset: int, into: memoryview
    ) -> None:
        """Reads one piece of the tensor's bytes.

        Raises:
            UnreadableTensor: the bytes may not be the tensor's, or the op is no longer pending.
        """
        if memory.device is not None:
            self._chunks.read(ref, memory, offset, into)
            return
        own = self._memory
        if own is None or not own.is_ours:
            raise UnreadableTensor("the kernel does not let this process read its own memory")
        if not self._unchanged(op, ref, memory):
            raise UnreadableTensor(GONE)
        try:
            complete = os.preadv(own.number, [into], memory.address + offset) == len(into)
        except (OSError, OverflowError):
            complete = False
        if not (complete and self._unchanged(op, ref, memory)):
            raise UnreadableTensor(GONE)

    def confirm(self, op: OpTensorRefs, memory: MemoryRange) -> None:
        """Checks that the op is still pending, if that can be known.

        Raises:
            UnreadableTensor: the op has completed, so the bytes may be its result.
        """
        if memory.device is not None:
            if self._pending.is_complete(op.sequence):
                raise UnreadableTensor(GONE)
            return
        self._pending.reap()
        if not self._pending.is_open(op.sequence):
            raise UnreadableTensor(GONE)

    def _unchanged(self, op: OpTensorRefs, ref: TensorRef, memory: MemoryRange) -> bool:
        try:
            return self._pending.is_open(op.sequence) and self.locate(ref) == memory
        except UnreadableTensor:
            return False

"""Reads tensors on an NVIDIA GPU, if the job allows it and a person asks.

The reader is a thread, a stream, an event and a pinned buffer, and making them may wait for the
device. So the reader is made only in a job started with the setting, at the first op on a device,
before anything hangs.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any, Final

from frtop_probe.recorder.ops.graph_captures import captures
from frtop_probe.recorder.ops.pending import PendingOps
from frtop_probe.recorder.ops.tensor_refs import TensorRef
from frtop_probe.recorder.tensors.cuda_driver import CudaDriver
from frtop_probe.recorder.tensors.device_reader import Copy, DeviceReader, Driver
from frtop_probe.recorder.tensors.tensor_memory import (
    GONE,
    MemoryRange,
    UnreadableTensor,
    is_nvidia,
    local_tensor,
    locate,
)

SETTING: Final = "FRTOP_DEVICE_TENSORS"
BUFFER: Final = 4 * 1024 * 1024
COPY_S: Final = 1.0
"""Time in s for one copy; on an idle bus the largest copy takes less than 1 ms."""
LAST_S: Final = 1.5
"""Time in s after a request until which a copy may be awaited."""
LEAST_S: Final = 0.2
TORN: Final = "read while its kernel may be writing: values may be torn"
NOT_WANTED: Final = (
    "in the memory of a device: frtop reads it only in jobs started with `frtop run "
    f"--device-tensors` ({SETTING}=1); compare shapes and stacks instead"
)
NOT_ASKED: Final = "in the memory of a device, which is read only when a person asks: t on its rank"
CAPTURING: Final = "the program is capturing a CUDA graph: nothing can be read now, ask again"
_LOOKED_AT: Final = 8
"""Newest ops that are searched for a tensor on a device."""


class DeviceTensors:
    """The process's only reader. It reads the device of the first op with a tensor on a device."""

    def __init__(self, torch: Any, driver: Callable[[], Driver] = CudaDriver) -> None:
        self._torch = torch
        self._driver = driver
        self._reader: DeviceReader | None = None
        self._failure = ""
        self.wanted = os.environ.get(SETTING) == "1"

    def prepare(self, pending: PendingOps) -> None:
        """Makes the reader once possible. Never raises, never waits for a device."""
        if not self.wanted or self._failure:
            return
        if self._reader is not None:
            self._reader.closed = False  # the recorder may have stopped in between
            return
        if not pending.device_ops or captures.active:
            return
        try:
            # Otherwise a subclass from the program could run its own code.
            with self._torch._C.DisableTorchFunctionSubclass():  # noqa: SLF001
                device = self._device(pending)
            if device is not None and self._torch.cuda.is_initialized():
                self._reader = DeviceReader(self._driver(), device, BUFFER)
        except Exception as error:  # noqa: BLE001 - an unexpected tensor must not end the recorder
            self._failure = f"{type(error).__name__}: {error}"

    def close(self) -> None:
        """Keeps the reader from dropping tensors from now on: the interpreter may end."""
        if self._reader is not None:
            self._reader.close()

    def read(self, copy: Copy, device: int, wait_s: float, go_on: Callable[[], bool]) -> memoryview:
        """Returns the bytes of a copy, which stay until the next copy.

        Raises:
            UnreadableTensor: they cannot be read; says why and, if there is one, names the
                next step.
        """
        if not self.wanted:
            raise UnreadableTensor(NOT_WANTED)
        if self._failure:
            raise UnreadableTensor(f"its reader could not be made: {self._failure}")
        reader = self._reader
        if reader is None:
            raise UnreadableTensor(
                "its reader is not ready yet: the first op on a device starts it, ask again"
            )
        if device != reader.device:
            raise UnreadableTensor(
                f"only cuda:{reader.device} is read: the reader was made for the first op's device"
            )
        if captures.active:
            raise UnreadableTensor(CAPTURING)
        return reader.read(copy, wait_s, go_on)

    def _device(self, pending: PendingOps) -> int | None:
        for op in reversed(list(pending.tensor_refs().values())[-_LOOKED_AT:]):
            for ref in op.tensors:
                tensor = ref.tensor()
                if tensor is not None and is_nvidia(self._torch, tensor):
                    return int(tensor.device.index or 0)
        return None


class DeviceChunks:
    """Tensors on devices for one request, read in chunks as large as the buffer."""

    def __init__(
        self, torch: Any, devices: DeviceTensors, go_on: Callable[[], bool], *, asked: bool
    ) -> None:
        """`asked` says whether a person asked; otherwise nothing is read."""
        self._asked = asked
        self._torch = torch
        self._devices = devices
        self._go_on = go_on
        self._last = time.monotonic() + LAST_S
        self._of: tuple[TensorRef, MemoryRange] | None = None
        self._start = 0
        self._chunk = memoryview(b"")

    def read(self, ref: TensorRef, memory: MemoryRange, offset: int, into: memoryview) -> None:
        """Reads bytes from `offset`, which must all be the tensor's.

        Raises:
            UnreadableTensor: they cannot be read, or the tensor is gone.
        """
        known = self._of == (ref, memory) and self._start <= offset
        if not known or offset + len(into) > self._start + len(self._chunk):
            self._copy(ref, memory, offset)
        begin = offset - self._start
        into[:] = self._chunk[begin : begin + len(into)]

    def _copy(self, ref: TensorRef, memory: MemoryRange, offset: int) -> None:
        assert memory.device is not None
        if not self._asked and self._devices.wanted:
            raise UnreadableTensor(NOT_ASKED)
        self._of = None
        if self._locate(ref) != memory:
            raise UnreadableTensor(GONE)
        size = min(BUFFER, memory.size - offset)
        copy = Copy(local_tensor(self._torch, ref), memory.address + offset, size)
        wait_s = max(LEAST_S, min(COPY_S, self._last - time.monotonic()))
        self._chunk = self._devices.read(copy, memory.device, wait_s, self._go_on)
        if self._locate(ref) != memory:
            raise UnreadableTensor(GONE)
        self._of, self._start = (ref, memory), offset

    def _locate(self, ref: TensorRef) -> MemoryRange:
        return locate(self._torch, local_tensor(self._torch, ref))

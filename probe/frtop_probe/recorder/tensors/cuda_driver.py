"""The few calls into NVIDIA's driver that copy a device's memory to the host: a thin edge.

It uses only a library that the process has already mapped: it loads none, initialises nothing, and
makes no context. A call releases the GIL while it is in the driver, and may stay there forever. So
one thread, which nobody waits for, makes all calls.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any, Final

LIBRARY: Final = "libcuda.so.1"
INVALID_VALUE: Final = 1
NOT_READY: Final = 600
_RELAXED: Final = 2
_NON_BLOCKING: Final = 1
_NO_TIMING: Final = 2


class DriverError(Exception):
    """A call failed; the text names it and its result."""

    def __init__(self, text: str, result: int = 0) -> None:
        super().__init__(text)
        self.result = result


class NothingQueuedError(DriverError):
    """A copy was refused because of its arguments, such as an address without memory."""


class CudaDriver:
    """Stream, event and pinned buffer on one device. All methods belong to one thread."""

    def __init__(self) -> None:
        self.call = ""
        """The driver function that has not returned yet; read by other threads."""
        self._library: Any = None
        self._stream, self._event = ctypes.c_void_p(), ctypes.c_void_p()
        self._host = ctypes.c_void_p()

    def make(self, device: int, size: int) -> None:
        """Makes everything that a copy needs, in the primary context, which torch also uses.

        Args:
            device: its number in torch.
            size: bytes of the pinned buffer.

        Raises:
            DriverError: the driver is missing, or refused.
        """
        self._library = mapped_library()
        number, context = ctypes.c_int(), ctypes.c_void_p()
        flags, active = ctypes.c_uint(), ctypes.c_int()
        self._call("cuDeviceGet", ctypes.byref(number), device)
        self._call("cuDevicePrimaryCtxGetState", number, ctypes.byref(flags), ctypes.byref(active))
        if not active.value:  # retaining it would make one: hundreds of MB on the device
            raise DriverError(f"device {device} has no context in this process")
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), number)
        self._call("cuCtxSetCurrent", context)
        # Otherwise our call could end another thread's capture, or be refused because of it.
        self._call("cuThreadExchangeStreamCaptureMode", ctypes.byref(ctypes.c_int(_RELAXED)))
        self._call("cuStreamCreate", ctypes.byref(self._stream), _NON_BLOCKING)
        self._call("cuEventCreate", ctypes.byref(self._event), _NO_TIMING)
        self._call("cuMemHostAlloc", ctypes.byref(self._host), ctypes.c_size_t(size), 0)

    def begin_copy(self, address: int, size: int) -> None:
        """Queues a copy into the buffer, which must be free, and an event after it.

        Raises:
            NothingQueuedError: nothing was queued.
            DriverError: the copy may be under way.
        """
        copy = self._host, ctypes.c_uint64(address), ctypes.c_size_t(size), self._stream
        try:
            self._call("cuMemcpyDtoHAsync_v2", *copy)
        except DriverError as error:
            if error.result == INVALID_VALUE:
                raise NothingQueuedError(str(error), error.result) from None
            raise  # errors of earlier work also surface here
        self._call("cuEventRecord", self._event, self._stream)

    def is_over(self) -> bool:
        """Returns whether the copy has ended. Raises `DriverError` if that is unknown."""
        return self._call("cuEventQuery", self._event, accepted=NOT_READY) == 0

    def copied(self, size: int) -> memoryview:
        """Returns the buffer's first bytes, until the next copy begins."""
        assert self._host.value is not None
        return memoryview((ctypes.c_char * size).from_address(self._host.value)).cast("B")

    def _call(self, name: str, *arguments: Any, accepted: int = 0) -> int:
        self.call = name
        try:
            result = int(getattr(self._library, name)(*arguments))
        except AttributeError:
            raise DriverError(f"this driver has no {name}") from None
        finally:
            self.call = ""
        if result not in (0, accepted):
            raise DriverError(f"{name} returned {self._name(result)}", result)
        return result

    def _name(self, result: int) -> str:
        text = ctypes.c_char_p()
        try:
            found = self._library.cuGetErrorName(result, ctypes.byref(text)) == 0 and text.value
        except AttributeError:
            found = None
        return f"{found.decode(errors='replace')} ({result})" if found else str(result)


def mapped_library() -> Any:
    """Returns the driver's library if this process has it.

    Raises:
        DriverError: the process does not have it.
    """
    try:
        return ctypes.CDLL(LIBRARY, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    except OSError:
        raise DriverError(f"{LIBRARY} is not loaded in this process") from None


def relax_this_thread() -> str:
    """Puts the calling thread into relaxed capture mode; returns "", or why that failed."""
    try:
        library = mapped_library()
    except DriverError as error:
        return str(error)
    mode = ctypes.c_int(_RELAXED)
    result = library.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode))
    return f"cuThreadExchangeStreamCaptureMode returned {result}" if result else ""

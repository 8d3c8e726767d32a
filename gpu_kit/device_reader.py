"""Reads a tensor of a stuck op: a copy on a stream of its own, polled to a deadline.

Everything is made before the hang, by the thread that will read: afterwards an allocation may wait
for the kernel that never ends. The thread is in relaxed capture mode, so that it breaks no capture
of other threads. Nobody joins it.
"""

from __future__ import annotations

import ctypes
import queue
import threading
import time
from dataclasses import dataclass, field
from typing import Any, Final

NOT_READY: Final = 600
_RELAXED: Final = 2
_NON_BLOCKING: Final = 1
_NO_TIMING: Final = 2


class DriverError(Exception):
    """A call into the driver failed; the text names it and its result."""


@dataclass(slots=True)
class _Request:
    address: int
    size: int
    deadline_s: float
    done: threading.Event = field(default_factory=threading.Event)
    answer: dict[str, Any] = field(default_factory=dict)


class DeviceReader:
    """A thread that copies bytes from the device."""

    def __init__(self, size: int) -> None:
        """Makes context, stream, event and a pinned buffer of `size` bytes.

        Raises:
            DriverError: there is no driver, or it refused.
        """
        self._size = size
        self._requests: queue.Queue[_Request] = queue.Queue()
        self._made = threading.Event()
        self._failure = ""
        threading.Thread(target=self._serve, daemon=True, name="device reader").start()
        if not self._made.wait(20.0):
            raise DriverError("not made within 20 s")
        if self._failure:
            raise DriverError(self._failure)

    def read(self, address: int, size: int, deadline_s: float = 1.0) -> dict[str, Any]:
        """Returns bytes as hex with `ready`, `ms` and, where a call failed, `error`.

        `returned` is False where the thread itself is stuck in the driver.
        """
        request = _Request(address, min(size, self._size), deadline_s)
        self._requests.put(request)
        if not request.done.wait(deadline_s + 1.0):
            return {"returned": False, "ready": False}
        return {"returned": True, **request.answer}

    def _serve(self) -> None:
        try:
            self._make()
        except (OSError, DriverError) as error:
            self._failure = str(error)
            return
        finally:
            self._made.set()
        while True:
            request = self._requests.get()
            try:
                request.answer = self._copy(request)
            except DriverError as error:
                request.answer = {"ready": False, "error": str(error)}
            request.done.set()

    def _make(self) -> None:
        self._driver = ctypes.CDLL("libcuda.so.1")
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self._stream, self._event = ctypes.c_void_p(), ctypes.c_void_p()
        self._host = ctypes.c_void_p()
        mode = ctypes.c_int(_RELAXED)
        self._call("cuInit", 0)
        self._call("cuDeviceGet", ctypes.byref(device), 0)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._call("cuCtxSetCurrent", context)
        self._call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))
        self._call("cuStreamCreate", ctypes.byref(self._stream), _NON_BLOCKING)
        self._call("cuEventCreate", ctypes.byref(self._event), _NO_TIMING)
        self._call("cuMemHostAlloc", ctypes.byref(self._host), ctypes.c_size_t(self._size), 0)

    def _copy(self, request: _Request) -> dict[str, Any]:
        began = time.monotonic()
        self._call(
            "cuMemcpyDtoHAsync_v2", self._host, ctypes.c_uint64(request.address),
            ctypes.c_size_t(request.size), self._stream,
        )  # fmt: skip
        issued = time.monotonic()
        self._call("cuEventRecord", self._event, self._stream)
        while (result := self._driver.cuEventQuery(self._event)) == NOT_READY:
            if time.monotonic() - began > request.deadline_s:
                break
            time.sleep(0.002)
        found = {
            "ready": result == 0,
            "result": result,
            "issue_ms": round(1e3 * (issued - began), 3),
            "ms": round(1e3 * (time.monotonic() - began), 3),
        }
        if result == 0 and self._host.value is not None:
            found["bytes"] = ctypes.string_at(self._host.value, request.size).hex()
        return found

    def _call(self, name: str, *arguments: Any) -> None:
        result = getattr(self._driver, name)(*arguments)
        if result:
            raise DriverError(f"{name} returned {result}")


def relax_this_thread() -> str:
    """Puts the calling thread into relaxed capture mode; returns what is in the way, or ""."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return str(error)
    mode = ctypes.c_int(_RELAXED)
    result = driver.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode))
    return f"cuThreadExchangeStreamCaptureMode returned {result}" if result else ""

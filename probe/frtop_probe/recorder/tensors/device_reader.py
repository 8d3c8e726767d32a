"""Copies memory of one device to the host while the device may be stuck.

Kernels occupy processors, not copy engines: a copy on its own stream passes a kernel that waits
forever. Everything that a copy needs is made beforehand, because a later allocation may also wait
for that kernel. One thread makes all calls. Nobody waits for it beyond a deadline, and nobody joins
it: it may be stuck in the driver for good.

A copy that does not end keeps its tensor: the memory must not become another tensor's while the
device may still read it. No other copy begins until it ends.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol

from frtop_probe.recorder.tensors.cuda_driver import DriverError, NothingQueuedError
from frtop_probe.recorder.tensors.tensor_memory import GONE, UnreadableTensor

NAME: Final = "frtop device"
WAIT_S: Final = 0.005
"""Time in s between two calls of `go_on` while a copy is under way."""
FIRST_POLL_S: Final = 0.0002
LAST_POLL_S: Final = 1.0
DROP_S: Final = 0.1
"""Longest wait in s, at the end of the program, for a tensor that is being dropped."""

Phase = Literal["making", "ready", "copying", "broken"]


class Driver(Protocol):
    """What `cuda_driver.CudaDriver` does."""

    @property
    def call(self) -> str: ...
    def make(self, device: int, size: int) -> None: ...
    def begin_copy(self, address: int, size: int) -> None: ...
    def is_over(self) -> bool: ...
    def copied(self, size: int) -> memoryview: ...


@dataclass(slots=True)
class Copy:
    """One copy. `tensor` keeps its memory allocated until the copy has ended."""

    tensor: Any
    address: int
    size: int
    over: threading.Event = field(default_factory=threading.Event)
    problem: str = ""


@dataclass(slots=True)
class ReaderState:
    """What a reader is doing, and since when (in s)."""

    phase: Phase
    since: float
    why: str = ""

    def enter(self, phase: Phase, now: float, why: str = "") -> None:
        self.phase, self.since, self.why = phase, now, why

    def obstacle(self, now: float, call: str) -> str:
        """Returns why no copy can begin, or "". `call` is the driver function under way."""
        age = f"{now - self.since:.1f} s"
        match self.phase:
            case "ready":
                return ""
            case "making":
                return (
                    f"the reader of this device is not ready yet: {call or 'it'} has run for {age}"
                )
            case "copying":
                where = f"{call} has not returned" if _stays(call) else "it has not ended"
                return f"device stuck: a copy began {age} ago, and {where}; no other copy begins"
            case "broken":
                return f"this device cannot be read any more: {self.why}"


class DeviceReader:
    """A thread that prepares copies and makes them. One other thread may call `read`."""

    def __init__(self, driver: Driver, device: int, size: int) -> None:
        """Starts the thread. `size` is the most bytes of one copy.

        Raises:
            RuntimeError: the system allows no more threads.
        """
        self.device = device
        self.size = size
        self.state = ReaderState("making", time.monotonic())
        self._driver = driver
        self._copies: queue.SimpleQueue[Copy] = queue.SimpleQueue()
        self._dropping = threading.Lock()
        self.closed = False
        """Set when the thread must no longer drop tensors."""
        self._leaked: list[Any] = []
        # It inherits the blocked signals of the recorder's thread, which starts it.
        threading.Thread(target=self._run, name=NAME, daemon=True).start()

    def read(self, copy: Copy, wait_s: float, go_on: Callable[[], bool]) -> memoryview:
        """Returns the bytes, which stay until the next copy.

        Args:
            copy: holds the caller's only reference to its tensor.
            wait_s: how long to wait for it.
            go_on: called while waiting; false if the client has left.

        Raises:
            UnreadableTensor: a copy cannot begin, failed, or did not end in time.
        """
        begin = time.monotonic()
        if obstacle := self.state.obstacle(begin, self._driver.call):
            raise UnreadableTensor(obstacle)
        self.state.enter("copying", begin)
        self._copies.put(copy)
        while not copy.over.wait(WAIT_S):
            if self.state.phase == "broken":
                raise UnreadableTensor(self.state.obstacle(begin, ""))
            if not go_on():
                raise UnreadableTensor(GONE)
            if time.monotonic() - begin > wait_s:
                raise UnreadableTensor(stuck(wait_s, self._driver.call))
        if copy.problem:
            raise UnreadableTensor(copy.problem)
        return self._driver.copied(copy.size)

    def close(self) -> None:
        """Keeps the thread from dropping a tensor: while the interpreter ends, that would abort."""
        held = self._dropping.acquire(timeout=DROP_S)
        self.closed = True
        if held:
            self._dropping.release()

    def _run(self) -> None:
        try:
            self._driver.make(self.device, self.size)
            self.state.enter("ready", time.monotonic())
            while True:
                copy = self._copies.get()
                self._copy(copy)
                copy.over.set()
                del copy
        except DriverError as error:
            self.state.enter("broken", time.monotonic(), str(error))
        except Exception as error:  # noqa: BLE001 - the worker's boundary: not the rank's error
            self.state.enter("broken", time.monotonic(), f"{type(error).__name__}: {error}")

    def _copy(self, copy: Copy) -> None:
        """Copies, then drops the tensor.

        Raises:
            DriverError: nobody knows whether the device still reads; the tensor stays for good.
        """
        begin = time.monotonic()
        try:
            self._driver.begin_copy(copy.address, copy.size)
            while not self._driver.is_over():
                age = time.monotonic() - begin
                time.sleep(min(max(age / 10, FIRST_POLL_S), LAST_POLL_S))
        except NothingQueuedError as error:
            copy.problem = f"the driver refused: {error}"
        except BaseException:
            self._leaked.append(copy.tensor)
            raise
        with self._dropping:
            if self.closed:
                self._leaked.append(copy.tensor)
            copy.tensor = None
        self.state.enter("ready", time.monotonic())


def stuck(waited_s: float, call: str) -> str:
    """Describes a copy that did not end in time, and where it is."""
    if _stays(call):
        return f"device stuck: {call} did not return within {waited_s:.1f} s"
    return f"device stuck: the copy did not end within {waited_s:.1f} s"


def _stays(call: str) -> bool:
    """Returns whether a call is expected to return only once the copy goes on."""
    return call not in ("", "cuEventQuery")

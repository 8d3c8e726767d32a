"""The reader of a stuck tensor, on a driver that answers late, with an error, or never."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import pytest

from gpu_kit.device_reader import NOT_READY, DeviceReader, DriverError


class Driver:
    """A stand-in of libcuda: `polls` before a copy is ready, -1 for never."""

    def __init__(self, *, polls: int = 0, fails: str = "", blocks: str = "") -> None:
        self.polls, self.fails, self.blocks = polls, fails, blocks
        self.memory = ctypes.create_string_buffer(64)
        self.threads: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> int:
            self.threads.add(threading.current_thread().name)
            if name == self.blocks:
                threading.Event().wait(30)
            if name == self.fails:
                return 999
            if name == "cuMemHostAlloc":
                arguments[0]._obj.value = ctypes.addressof(self.memory)
            if name == "cuMemcpyDtoHAsync_v2":
                self.memory.raw = b"\x00\x00\x80\x3f" * 16  # 1.0
            if name == "cuEventQuery" and self.polls:
                self.polls -= 1
                return NOT_READY
            return 0

        return call


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Any:
    def set_driver(driver: Driver) -> Driver:
        monkeypatch.setattr(ctypes, "CDLL", lambda _: driver)
        return driver

    return set_driver


def test_a_copy_that_gets_ready_is_returned(use: Any) -> None:
    driver = use(Driver(polls=3))
    found = DeviceReader(64).read(4096, 8)
    assert (found["ready"], found["bytes"]) == (True, "0000803f" * 2)
    assert driver.threads == {"device reader"}


def test_a_copy_that_never_gets_ready_ends_at_its_deadline(use: Any) -> None:
    use(Driver(polls=-1))
    found = DeviceReader(64).read(4096, 8, deadline_s=0.05)
    assert (found["returned"], found["ready"], found["result"]) == (True, False, NOT_READY)
    assert "bytes" not in found


def test_a_driver_that_blocks_is_left_alone(use: Any) -> None:
    use(Driver(blocks="cuMemcpyDtoHAsync_v2"))
    found = DeviceReader(64).read(4096, 8, deadline_s=0.05)
    assert found == {"returned": False, "ready": False}


def test_what_cannot_be_made_is_said(use: Any) -> None:
    use(Driver(fails="cuStreamCreate"))
    with pytest.raises(DriverError, match="cuStreamCreate returned 999"):
        DeviceReader(64)

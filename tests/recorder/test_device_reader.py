"""The reader of a device's memory and its states, on a driver that fails or never answers."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import threading
import types
import weakref
from typing import Any

import pytest

from frtop_probe.recorder.ops.graph_captures import captures
from frtop_probe.recorder.ops.operations import Operation, TensorArgument
from frtop_probe.recorder.ops.tensor_refs import OpTensorRefs, unpack
from frtop_probe.recorder.tensors.cuda_driver import CudaDriver, DriverError, NothingQueuedError
from frtop_probe.recorder.tensors.device_reader import NAME, Copy, DeviceReader
from frtop_probe.recorder.tensors.device_tensors import NOT_WANTED, SETTING, DeviceTensors
from frtop_probe.recorder.tensors.tensor_memory import GONE, UnreadableTensor, locate
from recorder.rank_runner import DEADLINE_S
from waiting import wait_for

RECEIVE = Operation("recv_", "recv", -1, (TensorArgument(0, 0, output=True),), *[-1] * 8)


class Driver:
    """Fails as `failures` says, by method; `polls` before a copy is over."""

    def __init__(self, polls: int = 0, failures: dict[str, Exception] | None = None) -> None:
        self.call = ""
        self.polls, self.failures = polls, failures or {}
        self.threads: set[str] = set()

    def _at(self, name: str) -> None:
        self.threads.add(threading.current_thread().name)
        if error := self.failures.pop(name, None):
            raise error

    def make(self, device: int, size: int) -> None:
        self._at("make")

    def begin_copy(self, address: int, size: int) -> None:
        self._at("begin_copy")

    def is_over(self) -> bool:
        self._at("is_over")
        self.polls -= 1
        return self.polls < 0

    def copied(self, size: int) -> memoryview:
        return memoryview(bytes(size))


class Tensor:
    """What a copy keeps; or an argument of an op."""

    def __init__(self, device: str = "cuda", index: int = 0) -> None:
        self.device = types.SimpleNamespace(type=device, index=index)


def reader_of(driver: Driver) -> DeviceReader:
    reader = DeviceReader(driver, 0, 64)
    wait_for(lambda: reader.state.phase != "making", "the reader", DEADLINE_S)
    return reader


def read(reader: DeviceReader, tensor: object = None, wait_s: float = DEADLINE_S) -> bytes:
    return bytes(reader.read(Copy(tensor, 4096, 8), wait_s, lambda: True))


def problem(reader: DeviceReader, *arguments: Any) -> str:
    with pytest.raises(UnreadableTensor) as caught:
        read(reader, *arguments)
    return str(caught.value)


def test_all_calls_are_made_by_its_own_thread() -> None:
    driver = Driver(polls=3)
    reader = reader_of(driver)
    assert read(reader) == read(reader) == bytes(8)
    assert driver.threads == {NAME}


def test_a_tensor_is_let_go_after_its_copy_and_not_before() -> None:
    driver = Driver(polls=10**9)
    reader, tensor = reader_of(driver), Tensor()
    held = weakref.ref(tensor)
    copy = Copy(tensor, 4096, 8)
    del tensor
    with pytest.raises(UnreadableTensor, match=r"the copy did not end within 0\.0 s"):
        reader.read(copy, 0.02, lambda: True)
    del copy
    gc.collect()
    assert held() is not None
    assert "no other copy begins" in problem(reader)
    driver.polls = 0
    wait_for(lambda: held() is None, "its end", DEADLINE_S)
    assert read(reader) == bytes(8)


def test_a_client_that_leaves_is_not_waited_for() -> None:
    reader = reader_of(Driver(polls=10**9))
    with pytest.raises(UnreadableTensor, match=GONE):
        reader.read(Copy(None, 4096, 8), DEADLINE_S, lambda: False)


def test_what_was_not_queued_leaves_the_reader_as_it_is() -> None:
    reader = reader_of(Driver(failures={"begin_copy": NothingQueuedError("cuMemcpy returned 1")}))
    assert problem(reader) == "the driver refused: cuMemcpy returned 1"
    assert read(reader) == bytes(8)


@pytest.mark.parametrize(
    ("method", "error"),
    [("begin_copy", DriverError("it returned 700")), ("is_over", ValueError("no number"))],
)
def test_after_any_other_failure_nothing_is_read_and_the_tensor_stays(
    method: str, error: Exception
) -> None:
    reader, tensor = reader_of(Driver(failures={method: error})), Tensor()
    held = weakref.ref(tensor)
    copy = Copy(tensor, 4096, 8)
    del tensor
    with pytest.raises(UnreadableTensor, match=f"cannot be read any more: .*{error}"):
        reader.read(copy, DEADLINE_S, lambda: True)
    del copy
    gc.collect()
    assert held() is not None
    assert str(error) in problem(reader)


def test_no_tensor_is_dropped_while_the_interpreter_ends() -> None:
    reader, tensor = reader_of(Driver()), Tensor()
    held = weakref.ref(tensor)
    reader.close()
    read(reader, tensor)
    del tensor
    gc.collect()
    assert held() is not None


def test_what_cannot_be_made_is_said() -> None:
    reader = reader_of(Driver(failures={"make": DriverError("cuStreamCreate returned 999")}))
    expected = "this device cannot be read any more: cuStreamCreate returned 999"
    assert problem(reader) == expected


def test_a_driver_that_lacks_a_function_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: types.SimpleNamespace())
    with pytest.raises(DriverError, match="this driver has no cuDeviceGet"):
        CudaDriver().make(0, 64)


class Pending:
    """The ops that a recorder knows, with one tensor each."""

    def __init__(self, *tensors: Tensor) -> None:
        self.device_ops = [one for one in tensors if one.device.type != "cpu"]
        self._tensors = tensors

    def tensor_refs(self) -> dict[int, OpTensorRefs]:
        return {number: unpack(number, RECEIVE, one) for number, one in enumerate(self._tensors)}


def torch_with(*, hip: str | None = None, initialized: bool = True) -> Any:
    return types.SimpleNamespace(
        _C=types.SimpleNamespace(DisableTorchFunctionSubclass=contextlib.nullcontext),
        version=types.SimpleNamespace(hip=hip),
        cuda=types.SimpleNamespace(is_initialized=lambda: initialized),
        Tensor=types.SimpleNamespace(__torch_dispatch__=None),
    )


def devices_with(torch: Any, pending: Pending) -> tuple[DeviceTensors, list[Driver]]:
    made: list[Driver] = []

    def driver() -> Driver:
        made.append(Driver())
        return made[-1]

    devices = DeviceTensors(torch, driver)
    for _ in range(3):
        devices.prepare(pending)  # type: ignore[arg-type]
    return devices, made


@pytest.fixture
def wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SETTING, "1")


@pytest.mark.usefixtures("wanted")
@pytest.mark.parametrize(
    ("torch", "tensors", "count"),
    [
        (torch_with(), (Tensor("cpu"), Tensor(index=3), Tensor("cpu")), 1),
        (torch_with(), (Tensor("cpu"),), 0),
        (torch_with(), (Tensor("xpu"),), 0),
        (torch_with(hip="6.2"), (Tensor(),), 0),
        (torch_with(initialized=False), (Tensor(),), 0),
    ],
)
def test_one_reader_is_made_and_only_at_an_op_on_nvidias_device(
    torch: Any, tensors: tuple[Tensor, ...], count: int
) -> None:
    _, made = devices_with(torch, Pending(*tensors))
    assert len(made) == count


@pytest.mark.usefixtures("wanted")
def test_none_is_made_during_a_capture() -> None:
    graph = Tensor()
    captures.begins(graph)
    try:
        devices, made = devices_with(torch_with(), Pending(Tensor()))
        assert made == []
        with pytest.raises(UnreadableTensor, match="is not ready yet"):
            devices.read(Copy(None, 4096, 8), 0, 1.0, lambda: True)
    finally:
        captures.over(graph)


@pytest.mark.usefixtures("wanted")
def test_an_unexpected_tensor_is_no_error_of_the_recorder() -> None:
    odd: Any = Tensor()
    pending = Pending(odd)
    del odd.device
    devices, _ = devices_with(torch_with(), pending)
    with pytest.raises(UnreadableTensor, match="could not be made: AttributeError"):
        devices.read(Copy(None, 4096, 8), 0, 1.0, lambda: True)


def test_without_the_setting_nothing_is_made_and_the_setting_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(SETTING, raising=False)
    devices, made = devices_with(torch_with(), Pending(Tensor()))
    assert made == []
    with pytest.raises(UnreadableTensor) as caught:
        devices.read(Copy(None, 4096, 8), 0, 1.0, lambda: True)
    assert str(caught.value) == NOT_WANTED
    assert f"{SETTING}=1" in NOT_WANTED


@pytest.mark.parametrize(("kind", "hip", "name"), [("xpu", None, "xpu"), ("cuda", "6.2", "ROCm")])
def test_other_devices_are_named(kind: str, hip: str | None, name: str) -> None:
    with pytest.raises(UnreadableTensor, match=rf"device \({name}\): frtop reads only NVIDIA's"):
        locate(torch_with(hip=hip), Tensor(kind))

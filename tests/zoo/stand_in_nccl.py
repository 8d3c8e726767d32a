"""NCCL's place in a process group, where there is no GPU: what a recorder can see of it.

Ops on `tensor()`s pass torch's dispatcher as those on GPUs do. Their call hands them to a thread
per group, the *device*, and returns; there a real gloo op between the ranks completes them, or does
not. A group's first op makes the connections, in its call, as NCCL makes a communicator. The
group's status is what the Flight Recorder of ProcessGroupNCCL says. Nothing is computed.
"""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

import torch
import torch.distributed as dist

CUDA: Final = torch.device("cuda")
CORE: Final[Any] = torch._C._distributed_c10d
_TIMEOUT: Final = timedelta(hours=1)
_TORCHS: Final = """
def synchronize():
    while not drained(0.05):
        pass

def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
    with disabled():
        return func(*args, **(kwargs or {}))
"""
"""Frames that a stack has to show as those of `torch.cuda`."""
_SCOPE: Final[dict[str, Any]] = {"disabled": torch._C._DisableTorchDispatch}
exec(compile(_TORCHS, str(torch.cuda.__file__), "exec"), _SCOPE)


class DeviceTensor(torch.Tensor):
    """A tensor that says it is on a GPU, and has no memory."""

    __torch_dispatch__: Any = classmethod(_SCOPE["__torch_dispatch__"])


class Device:
    """The ops of one group that were handed over, and a thread that completes them in order."""

    groups: Final[list[Device]] = []

    def __init__(self, store: Any, rank: int, size: int, backend: Any) -> None:
        self.backend = backend
        self.issued = 0
        self.messages = 0
        self.enqueued = -1
        self.completed = -1
        self.error = "SUCCESS"
        self.delay_s = 0.0
        """How long an op takes on the device, beside waiting for the others."""
        self.call_s = 0.0
        """How long the call of an op takes."""
        self._store = store
        self._rank, self._size = rank, size
        self._links: Any = None
        self._queue: queue.SimpleQueue[tuple[int, Callable[[], Any]]] = queue.SimpleQueue()
        self._idle = threading.Condition()
        self._left = 0
        self.listed = False
        self.groups.append(self)

    def issue(self, message: Callable[[Any], Any] | None = None, *, captured: bool = False) -> None:
        """Hands an op over: a collective, or else a `message` through the links.

        A captured op takes a number only.
        """
        if message is None:
            self.issued += 1
        else:
            self.messages += 1
        self.listed = True
        if captured:
            return
        time.sleep(self.call_s)
        if self._links is None:
            store = CORE.PrefixStore("device", self._store)
            self._links = dist.ProcessGroupGloo(store, self._rank, self._size, _TIMEOUT)
            threading.Thread(target=self._run, daemon=True, name="device").start()
        links, number = self._links, self.issued if message is None else self.messages
        options = dist.AllreduceOptions()
        work = message or (lambda links: links.allreduce([torch.ones(1)], options))
        with self._idle:
            self._left += 1
        self._queue.put((number, lambda: work(links)))
        self.enqueued = number

    def drained(self, seconds: float) -> bool:
        with self._idle:
            return self._idle.wait_for(lambda: not self._left, seconds)

    @property
    def behind(self) -> bool:
        """Whether it has ops to do. Takes no lock: a stack would show it."""
        return self._left > 0

    def _run(self) -> None:
        while True:
            number, work = self._queue.get()
            if self.delay_s:
                threading.Event().wait(self.delay_s)
            work().wait()
            self.completed = number
            with self._idle:
                self._left -= 1
                self._idle.notify_all()


def tensor(size: int = 8) -> Any:
    return DeviceTensor._make_wrapper_subclass(DeviceTensor, (size,), device=torch.device("cuda:0"))


def device_of(group: Any = None) -> Device:
    """The device side of a group; None: of the default group."""
    of: Any = group or dist.group.WORLD
    return _devices[id(of._get_backend(CUDA))]


_devices: Final[dict[int, Device]] = {}
_kept: Final[list[Any]] = []
_capturing: Final = threading.Event()
capture = _capturing.set
end_capture = _capturing.clear


def install(*, recording: bool = True) -> None:
    """Puts itself into all groups that are made from now on; before `init_process_group`.

    `recording`: whether the Flight Recorder is on.
    """
    c10d: Any = dist.distributed_c10d
    fake: Any = CORE.FakeProcessGroup
    register = c10d._register_process_group

    def registered(name: str, group: Any) -> None:
        register(name, group)
        backend = fake._create_internal(group.rank(), group.size())
        group._register_backend(CUDA, dist.ProcessGroup.BackendType.NCCL, backend)
        c10d._world.pg_backend_config[group] = "cpu:gloo,cuda:nccl"
        found = group._get_backend(CUDA)
        _kept.append(found)
        store = CORE.PrefixStore(f"{name}/nccl", c10d._world.pg_map[group][1])
        _devices[id(found)] = Device(store, group.rank(), group.size(), found)

    c10d._register_process_group = registered
    fake.name = lambda _: "nccl"
    fake.uid = property(lambda backend: list(_devices).index(id(backend)))
    fake._get_sequence_number_for_group = lambda backend: _devices[id(backend)].issued
    fake.get_error = lambda backend: CORE.ErrorType.__members__[_devices[id(backend)].error]
    CORE._dump_nccl_trace_json = _dump if recording else _dump_nothing
    library: Any = torch.library.Library("c10d", "IMPL")  # type: ignore[no-untyped-call]
    for name, kernel in _KERNELS.items():
        library.impl(name, kernel, "CUDA")
    _kept.append(library)
    _SCOPE["drained"] = lambda seconds: all(one.drained(seconds) for one in Device.groups)
    torch.cuda.synchronize = _SCOPE["synchronize"]


def _dump(entries: bool, active: bool) -> bytes:
    assert active
    assert not entries, "that asks the device"
    status = {
        str(at): {
            "last_enqueued_collective": str(one.enqueued),
            "last_started_collective": "-1",
            "last_completed_collective": str(one.completed),
        }
        for at, one in enumerate(_devices.values())
        if one.listed
    }
    return json.dumps({"version": "2.10", "pg_status": status}).encode()


def _dump_nothing(entries: bool, active: bool) -> bytes:
    return b'{"version":"2.10","pg_status":{}}'


def _issue(boxed: Any, message: Callable[[Any], Any] | None = None) -> Any:
    group: Any = dist.ProcessGroup.unbox(boxed)
    device_of(group).issue(message, captured=_capturing.is_set())
    done: Any = torch.futures.Future()
    done.set_result(torch.zeros(1))
    return CORE._create_work_from_future(done).boxed()  # its `wait` returns at once, as NCCL's


def _all_reduce(tensors: Any, group: Any, *_: Any) -> Any:
    return tensors, _issue(group)


def _all_gather(output: Any, _: Any, group: Any, *more: Any) -> Any:
    return output, _issue(group)


def _send(_: Any, group: Any, peer: int, tag: int) -> Any:
    return _issue(group, lambda links: links.send([torch.ones(1)], peer, tag))


def _receive(_: Any, group: Any, peer: int, tag: int) -> Any:
    return _issue(group, lambda links: links.recv([torch.ones(1)], peer, tag))


_KERNELS: Final[dict[str, Callable[..., Any]]] = {
    "allreduce_": _all_reduce,
    "_allgather_base_": _all_gather,
    "_reduce_scatter_base_": _all_gather,
    "send": _send,
    "recv_": _receive,
}

"""How a rank of the kit joins: on the one GPU with NCCL, or on gloo where there is none."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist

from gpu_kit import facts
from gpu_kit.ranks import BACKEND

TIMEOUT: Final = timedelta(minutes=20)
"""Longer than the kit runs, so no watchdog ends what it looks at."""


@dataclass(frozen=True, slots=True)
class Here:
    """This rank."""

    rank: int
    world: int
    device: torch.device
    folder: Path

    @property
    def on_gpu(self) -> bool:
        return self.device.type == "cuda"

    @property
    def backend(self) -> Any:
        group: Any = dist.group.WORLD
        return group._get_backend(self.device)  # noqa: SLF001

    def synchronize(self) -> None:
        if self.on_gpu:
            torch.cuda.synchronize()

    def meet(self, name: str, seconds: float = 60.0) -> None:
        """Waits for all ranks by files, without an op; goes on after `seconds` in any case."""
        (self.folder / f"{name}.{self.rank}").touch()
        end = time.monotonic() + seconds
        while len(list(self.folder.glob(f"{name}.*"))) < self.world and time.monotonic() < end:
            time.sleep(0.01)

    def wait_for_file(self, name: str, seconds: float) -> bool:
        end = time.monotonic() + seconds
        while not (self.folder / name).exists():
            if time.monotonic() > end:
                return False
            time.sleep(0.02)
        return True


def join() -> Here:
    """Joins the default group."""
    torch.set_num_threads(1)
    on_gpu = os.environ[BACKEND] == "nccl"
    here = Here(
        int(os.environ["RANK"]),
        int(os.environ["WORLD_SIZE"]),
        torch.device("cuda", 0) if on_gpu else torch.device("cpu"),
        Path(os.environ["GPU_KIT_FOLDER"]),
    )
    if on_gpu:
        torch.cuda.set_device(0)
    dist.init_process_group(os.environ[BACKEND], timeout=TIMEOUT)
    return here


def say_joined(here: Here, ms_per_op: float, *, right: bool) -> None:
    """Writes a fact about this rank, after the first ops."""
    backend = here.backend
    cuda: Any = torch.cuda
    nccl = cuda.nccl.version() if here.on_gpu else ()
    facts.say(
        "joined", rank=here.rank, world=here.world, torch=str(torch.__version__),
        nccl=".".join(map(str, nccl)), backend=_name_of(backend),
        uid=str(getattr(backend, "uid", "")), ms_per_op=round(ms_per_op, 3), right=right,
    )  # fmt: skip


def _name_of(backend: Any) -> str:
    try:
        return str(backend.name())
    except AttributeError:
        return type(backend).__name__


def dump(backend: Any, collectives: bool, active: bool) -> bytes:
    """Returns the Flight Recorder of this rank's backend as JSON; backends differ in functions."""
    from torch._C import _distributed_c10d as c10d  # noqa: PLC0415

    functions: Any = c10d
    name = _name_of(backend)
    if name == "nccl":
        return bytes(functions._dump_nccl_trace_json(collectives, active))  # noqa: SLF001
    if name == "gloo":
        return bytes(functions._dump_fr_trace_json(collectives, active))  # noqa: SLF001
    return bytes(
        functions._dump_fr_trace_json(collectives, active, backend=name)  # noqa: SLF001
    )

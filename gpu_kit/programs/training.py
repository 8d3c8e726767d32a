"""Training steps of the usual kinds: DDP, FSDP2, tensor parallel, and experts on other ranks.

Each maker starts from the same seed, so two runs of it must have the same results.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import torch
import torch.distributed as dist

from gpu_kit.programs.joining import Here

WIDTH: Final = 512
LAYERS: Final = 6
Step = Callable[[], torch.Tensor]
"""Trains one step, and returns its loss (or a substitute), still on the device."""
Maker = Callable[[Here], tuple[Step, Callable[[], str]]]
"""Returns a step, and a function that returns a digest of the model after the steps."""


def ddp(here: Here, rows: int = 64) -> tuple[Step, Callable[[], str]]:
    from torch.nn.parallel import DistributedDataParallel  # noqa: PLC0415

    model, batch = _model(here, rows)
    wrapped = DistributedDataParallel(model, bucket_cap_mb=1)
    return _training(wrapped, batch), lambda: _digest(list(model.parameters()))


def fsdp(here: Here) -> tuple[Step, Callable[[], str]]:
    from torch.distributed.device_mesh import init_device_mesh  # noqa: PLC0415
    from torch.distributed.fsdp import fully_shard  # noqa: PLC0415

    model, batch = _model(here)
    mesh = init_device_mesh(here.device.type, (here.world,))
    for layer in model:
        if isinstance(layer, torch.nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return _training(model, batch), lambda: _digest(_local(model))


def tensor_parallel(here: Here) -> tuple[Step, Callable[[], str]]:
    """Pairs of layers, the first split by columns and the second by rows: an op each way."""
    from torch.distributed.device_mesh import init_device_mesh  # noqa: PLC0415
    from torch.distributed.tensor import parallel  # noqa: PLC0415

    model, _ = _model(here)
    mesh = init_device_mesh(here.device.type, (here.world,))
    linear = [name for name, layer in model.named_children() if isinstance(layer, torch.nn.Linear)]
    styles = (parallel.ColwiseParallel, parallel.RowwiseParallel)
    parallel.parallelize_module(
        model, mesh, {name: styles[n % 2]() for n, name in enumerate(linear)}
    )
    torch.manual_seed(1)  # all ranks have the same batch
    batch = torch.randn(64, WIDTH).to(here.device)
    return _training(model, batch), lambda: _digest(_local(model))


def _model(here: Here, rows: int = 64) -> tuple[torch.nn.Sequential, torch.Tensor]:
    torch.manual_seed(0)
    layers = [
        layer for _ in range(LAYERS) for layer in (torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU())
    ]
    batch = torch.randn(rows, WIDTH) + here.rank
    return torch.nn.Sequential(*layers).to(here.device), batch.to(here.device)


def _training(model: torch.nn.Module, batch: torch.Tensor) -> Step:
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss: torch.Tensor = model(batch).square().mean()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return loss.detach()

    return step


def moe(here: Here) -> tuple[Step, Callable[[], str]]:
    """Tokens go to experts on other ranks and come back; the numbers change in each step."""
    torch.manual_seed(0)
    choose = random.Random(here.rank)
    expert = torch.nn.Linear(WIDTH, WIDTH).to(here.device)
    sums: list[float] = []

    def step() -> torch.Tensor:
        sends = [choose.randrange(1, 64) for _ in range(here.world)]
        sent = torch.tensor(sends, device=here.device)
        taken = torch.empty_like(sent)
        dist.all_to_all_single(taken, sent)
        takes = taken.tolist()
        tokens = torch.full((sum(sends), WIDTH), here.rank + 1.0, device=here.device)
        received = torch.empty(sum(takes), WIDTH, device=here.device)
        dist.all_to_all_single(received, tokens, takes, sends)
        with torch.no_grad():
            answers = expert(received)
        back = torch.empty_like(tokens)
        dist.all_to_all_single(back, answers, sends, takes)
        total = back.sum()
        sums.append(float(total))
        return total

    return step, lambda: repr(sums)


MAKERS: Final[dict[str, Maker]] = {
    "ddp": ddp, "ddp_512": partial(ddp, rows=512), "fsdp": fsdp,
    "tensor_parallel": tensor_parallel, "moe": moe,
}  # fmt: skip


def _local(model: torch.nn.Module) -> list[Any]:
    parameters: list[Any] = list(model.parameters())
    return [getattr(one, "to_local", lambda one=one: one)() for one in parameters]


def _digest(tensors: list[Any]) -> str:
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]

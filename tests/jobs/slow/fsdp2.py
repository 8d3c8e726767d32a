"""FSDP2 over two layers; rank 1 computes 40 ms longer before its forward pass."""

import time

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from zoo.rank import join, slow
from zoo.steps import STEPS, WORK_S, optimizer_of, spin

CASE = slow(1, late_ms=40)


def main(*, adds_up_loss: bool = False) -> None:
    job = join()
    torch.manual_seed(0)
    mesh = init_device_mesh("cpu", (job.world,))
    layers = [torch.nn.Linear(64, 64) for _ in range(2)]
    model = torch.nn.Sequential(*layers)
    for layer in layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = optimizer_of(model)
    for _ in range(STEPS):
        job.mark_fault()
        time.sleep(WORK_S)
        if job.rank == 1:
            spin(0.04)
        loss = model(torch.ones(4, 64)).sum()
        loss.backward()
        optimizer.step()
        if adds_up_loss:
            dist.all_reduce(loss.detach())
        optimizer.zero_grad()


if __name__ == "__main__":
    main()

"""DistributedDataParallel with several buckets; rank 1 computes 40 ms longer in its forward."""

import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from zoo.rank import join, slow
from zoo.steps import STEPS, WORK_S, optimizer_of, spin

CASE = slow(1, late_ms=40)


class Slow(torch.nn.Module):
    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        time.sleep(WORK_S)
        spin(self._seconds)
        return batch


def main(*, adds_up_loss: bool = False) -> None:
    job = join()
    torch.manual_seed(0)
    layers = [torch.nn.Linear(300, 300) for _ in range(6)]
    inner = torch.nn.Sequential(Slow(0.04 * (job.rank == 1)), *layers)
    model = DistributedDataParallel(inner, bucket_cap_mb=0.5)
    optimizer = optimizer_of(model)
    for _ in range(STEPS):
        job.mark_fault()
        loss = model(torch.ones(4, 300)).sum()
        loss.backward()
        optimizer.step()
        if adds_up_loss:
            dist.all_reduce(loss.detach())
        optimizer.zero_grad()


if __name__ == "__main__":
    main()

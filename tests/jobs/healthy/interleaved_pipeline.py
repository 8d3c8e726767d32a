"""Interleaved stages by torch's own schedule, two chunks a rank; rank 1 computes once for 10 s."""

import time

import torch
from torch.distributed.pipelining import PipelineStage, ScheduleInterleaved1F1B

from zoo.rank import STEP_S, Case, Job, join, truth

CASE = Case(
    modes=("sync",),
    lasts_s=30,
    allowed=(truth("not_entered", 1, "computing", progress=("active", "unknown")),),
)
CHUNKS = 2
BATCHES = 8
WIDTH = 16


class Stage(torch.nn.Module):
    def __init__(self, job: Job) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(WIDTH, WIDTH)
        self.job = job
        self.calls = 0

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        time.sleep(STEP_S / BATCHES)
        self.calls += 1
        if self.calls == 30 * BATCHES and self.job.rank == 1:
            self.job.mark_fault()
            compute(10.0)
        output: torch.Tensor = self.linear(batch)
        return output


def compute(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        torch.rand(1000).sum()


job = join()
stages = [
    PipelineStage(Stage(job), job.rank + chunk * job.world, CHUNKS * job.world, torch.device("cpu"))
    for chunk in range(CHUNKS)
]
schedule = ScheduleInterleaved1F1B(stages, BATCHES, loss_fn=torch.nn.functional.mse_loss)
batch = torch.ones(BATCHES * 2, WIDTH)
for _ in range(200):
    if job.rank == 0:
        schedule.step(batch)
    elif job.rank == job.world - 1:
        schedule.step(target=batch)
    else:
        schedule.step()

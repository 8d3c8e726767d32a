"""A pipeline of four stages with sends and receives only: one forward, one backward.

If sends block, all forwards come first: two stages that send to each other would deadlock.
"""

import time
from typing import Any

import torch
import torch.distributed as dist

from zoo.rank import STEP_S, Case, Job, join

CASE = Case(lasts_s=25)
MICRO_BATCHES = 8


def send(job: Job, tensor: torch.Tensor, to: int) -> None:
    if not 0 <= to < job.world:
        return
    if job.late:
        job.keep(dist.isend(tensor.clone(), to))
    else:
        dist.send(tensor, to)


def posted(job: Job, of: int) -> tuple[torch.Tensor, Any]:
    """Posts a receive ahead."""
    tensor = torch.ones(1000)
    return tensor, dist.irecv(tensor, of) if 0 <= of < job.world and job.late else None


def received(job: Job, posting: tuple[torch.Tensor, Any], of: int) -> torch.Tensor:
    tensor, work = posting
    if work is not None:
        work.wait()
    elif 0 <= of < job.world:
        dist.recv(tensor, of)
    return tensor


def step(job: Job) -> None:
    before, after = job.rank - 1, job.rank + 1
    # Number of forwards before the first backward.
    ahead = job.world - 1 - job.rank if job.late else MICRO_BATCHES
    forwards = [posted(job, before) for _ in range(MICRO_BATCHES)]
    backwards = [posted(job, after) for _ in range(MICRO_BATCHES)]
    for number in range(MICRO_BATCHES + ahead):
        if number < MICRO_BATCHES:
            activations = received(job, forwards[number], before)
            time.sleep(STEP_S)
            send(job, activations, after)
        if number >= ahead:
            gradient = received(job, backwards[number - ahead], after)
            time.sleep(STEP_S)
            send(job, gradient, before)
    job.wait()


job = join()
for _ in range(25):
    step(job)

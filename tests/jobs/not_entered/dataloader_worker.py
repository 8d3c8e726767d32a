"""A DataLoader worker of rank 1 reads a shard that never arrives."""

import time

import torch
from torch.utils.data import DataLoader

from zoo.rank import STEP_S, fault, join
from zoo.steps import Samples

CASE = fault("not_entered", 1, "dataloader", says=("worker", "shard"))

job = join()
gradient, shard = torch.ones(1000), job.pipe("shard")


def read() -> None:
    if job.rank == 1:
        job.mark_fault()
        shard.read_bytes()


for batch in DataLoader(Samples(81, read), batch_size=2, num_workers=2):
    time.sleep(STEP_S)
    gradient += batch.mean()
    job.all_reduce(gradient)

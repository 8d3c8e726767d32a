"""The storage that all ranks read from hangs; no rank waits for another."""

import time

import torch
from torch.utils.data import DataLoader

from zoo.rank import STEP_S, fault, join
from zoo.steps import Samples

CASE = fault(
    "not_entered", (0, 1, 2, 3), "dataloader", says=("no rank is in an op", "shard"), within_s=90
)

job = join()
gradient, shard = torch.ones(1000), job.pipe("shard")


def read() -> None:
    job.mark_fault()
    shard.read_bytes()


for batch in DataLoader(Samples(81, read), batch_size=2, num_workers=2):
    time.sleep(STEP_S)
    gradient += batch.mean()
    job.all_reduce(gradient)

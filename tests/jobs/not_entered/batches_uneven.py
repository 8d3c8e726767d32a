"""Rank 1 has fewer batches, leaves its training loop and waits for a queue that stays empty."""

import queue
import time

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from zoo.rank import STEP_S, fault, join

CASE = fault("not_entered", 1, "lock", modes=("sync",))


job = join()
model = DistributedDataParallel(torch.nn.Linear(10, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
batches = 40 if job.rank == 1 else 60
for (batch,) in DataLoader(TensorDataset(torch.ones(batches * 4, 10)), batch_size=4):
    time.sleep(STEP_S)
    optimizer.zero_grad()
    model(batch).sum().backward()
    optimizer.step()
if job.rank == 1:
    job.mark_fault()
results: queue.Queue[float] = queue.Queue()
print("validation:", results.get())

"""A DataLoader worker of rank 1 hangs in its fork, because a thread held a lock then.

This happens if a library, or the interpreter (CPython gh-112275), holds a lock over forks.
"""

import os
import threading
import time

import torch
from torch.utils.data import DataLoader, TensorDataset

from zoo.rank import STEP_S, Job, fault, join

CASE = fault("not_entered", 1, "dataloader", says=("worker", "is still in its fork"))

lock = threading.Lock()


def hold(job: Job) -> None:
    """Takes the lock in another thread before the epoch that never begins."""
    lock.acquire()
    job.mark_fault()
    time.sleep(3600)


job = join()
data = TensorDataset(torch.ones(40, 1000))
gradient = torch.ones(1000)
os.register_at_fork(after_in_child=lock.acquire)
for epoch in range(1000):
    if epoch == 3 and job.rank == 1:
        threading.Thread(target=hold, args=(job,), daemon=True).start()
        time.sleep(STEP_S)
    for (batch,) in DataLoader(data, batch_size=2, num_workers=2):
        time.sleep(STEP_S)
        gradient += batch.mean()
        job.all_reduce(gradient)

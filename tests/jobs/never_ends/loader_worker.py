"""All ranks are done; rank 0's loader has a worker that hangs in a file, and no signal ends it."""

import os
import signal
import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader

from zoo.rank import STEP_S, fault, join
from zoo.steps import Samples

CASE = fault(
    "stuck", 0, ("subprocess", "dataloader"), says=("does not end", "state T"), within_s=100
)


def stop() -> None:
    """SIGTERM has no effect on it then, as on one in state D."""
    os.kill(os.getpid(), signal.SIGSTOP)


job = join()
gradient = torch.ones(1000)
batches = iter(DataLoader(Samples(63 if job.rank == 0 else -1, stop), num_workers=2))
for _ in range(60):
    time.sleep(STEP_S)
    gradient += next(batches).mean()
    job.all_reduce(gradient)
job.mark_fault()
del batches
dist.destroy_process_group()

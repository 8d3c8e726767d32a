"""A DataLoader worker of rank 1 is killed, as by an out-of-memory kill, and the rank raises."""

import os
import signal
import time

from torch.utils.data import DataLoader

from zoo.rank import STEP_S, fault, join
from zoo.steps import Samples

CASE = fault("dead", 1, "exception", says=("DataLoader worker", "killed"))

job = join()


def end() -> None:
    if job.rank == 1:
        job.mark_fault()
        os.kill(os.getpid(), signal.SIGKILL)


for batch in DataLoader(Samples(61, end), num_workers=2):
    time.sleep(STEP_S)
    job.all_reduce(batch)

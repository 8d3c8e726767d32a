"""A DataLoader worker of rank 1 is killed, as by an out-of-memory kill, and the rank raises."""

import os
import signal
import time

import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

from zoo.ground_truth import fault
from zoo.rank import STEP_S, Job, join

CASE = fault("dead", 1, "exception", says=("DataLoader worker", "killed"))


class Shards(Dataset[torch.Tensor]):
    def __init__(self, job: Job) -> None:
        self.job = job

    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> torch.Tensor:
        info = get_worker_info()
        if info is not None and info.id == 1 and index >= 60 and self.job.rank == 1:
            self.job.mark_fault()
            os.kill(os.getpid(), signal.SIGKILL)
        return torch.full((1000,), float(index))


def main() -> None:
    job = join()
    for batch in DataLoader(Shards(job), num_workers=2):
        time.sleep(STEP_S)
        job.all_reduce(batch)


if __name__ == "__main__":
    main()

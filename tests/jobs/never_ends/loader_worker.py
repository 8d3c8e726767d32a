"""All ranks are done; rank 0's loader has a worker that hangs in a file, and no signal ends it."""

import os
import signal
import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

from zoo.ground_truth import fault
from zoo.rank import STEP_S, join

CASE = fault(
    "stuck", 0, ("subprocess", "dataloader"), says=("does not end", "state T"), within_s=100
)


class Samples(Dataset[torch.Tensor]):
    def __init__(self, rank: int) -> None:
        self._rank = rank

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> torch.Tensor:
        if self._rank == 0 and index == 63:  # SIGTERM has no effect on it, as on one in state D
            os.kill(os.getpid(), signal.SIGSTOP)
        return torch.full((1000,), float(index))


def main() -> None:
    job = join()
    gradient = torch.ones(1000)
    batches = iter(DataLoader(Samples(job.rank), num_workers=2))
    for _ in range(60):
        time.sleep(STEP_S)
        gradient += next(batches).mean()
        job.all_reduce(gradient)
    job.mark_fault()
    del batches
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

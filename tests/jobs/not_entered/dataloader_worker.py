"""A DataLoader worker of rank 1 reads a shard that never arrives."""

import time
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset

from zoo.ground_truth import fault
from zoo.rank import STEP_S, Job, join

CASE = fault("not_entered", 1, "dataloader", says=("worker", "shard"))


class Shards(Dataset[torch.Tensor]):
    def __init__(self, job: Job, shard: Path) -> None:
        self._job, self._shard = job, shard

    def __len__(self) -> int:
        return 1000

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 81 and self._job.rank == 1:
            self._job.mark_fault()
            self._shard.read_bytes()
        return torch.full((1000,), float(index))


def main() -> None:
    job = join()
    gradient = torch.ones(1000)
    for batch in DataLoader(Shards(job, job.pipe("shard")), batch_size=2, num_workers=2):
        time.sleep(STEP_S)
        gradient += batch.mean()
        job.all_reduce(gradient)


if __name__ == "__main__":
    main()

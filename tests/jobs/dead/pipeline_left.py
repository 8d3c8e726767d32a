"""The last stage of a pipeline has too few batches and ends; the others lose connections."""

import time

import torch
import torch.distributed as dist

from zoo.ground_truth import fault
from zoo.rank import STEP_S, join

CASE = fault("dead", 2, "exited", ranks=3, modes=("sync",))


def main() -> None:
    job = join()
    activation = torch.ones(1_000_000)
    for step in range(100):
        time.sleep(STEP_S)
        if job.rank == 2 and step == 40:
            job.mark_fault()
            return
        if job.rank > 0:
            dist.recv(activation, job.rank - 1)
        if job.rank < 2:
            dist.send(activation, job.rank + 1)


if __name__ == "__main__":
    main()

"""All ranks have entered, but rank 2 receives no packets: its interface is down."""

import time

import torch
import torch.distributed as dist

from zoo.ground_truth import Case, Truth
from zoo.packet_filter import drop_all_incoming
from zoo.rank import STEP_S, join

CASE = Case((Truth(("stuck",), culprits=(2,), causes=("unreachable",), says=("acknowledged",)),))


def main() -> None:
    job = join()
    gradient = torch.ones(1000)
    for step in range(100):
        time.sleep(STEP_S)
        if step == 40 and job.rank == 2:
            job.mark_fault()
            drop_all_incoming()
        job.keep(dist.all_reduce(gradient, async_op=job.late))
        job.wait()


if __name__ == "__main__":
    main()

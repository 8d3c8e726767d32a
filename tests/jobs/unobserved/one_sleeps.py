"""Rank 2 sleeps: it enters neither a transport past c10d, where 0-1 spin, nor an all_reduce."""

import time

import torch
import torch.distributed as dist

from zoo.ground_truth import Case, Truth
from zoo.rank import STEP_S, join
from zoo.transport import Transport

CASE = Case((Truth(("not_entered",), culprits=(2,), causes=("sleeping",)),))


def main() -> None:
    job = join()
    transport = Transport(job)
    tokens = torch.zeros(10)
    for step in range(100):
        time.sleep(STEP_S)
        transport.replay()
        if step == 40:
            job.mark_fault()
            if job.rank == 2:
                time.sleep(3600)
            elif job.rank < 2:
                transport.spin_for(2)
        job.keep(dist.all_reduce(tokens, async_op=job.late))
        job.wait()


if __name__ == "__main__":
    main()

"""Rank 2 never enters a call of a transport past c10d, and sleeps in C; the others spin in it."""

import time

import torch
import torch.distributed as dist

from zoo.ground_truth import Case, Truth
from zoo.rank import STEP_S, join
from zoo.transport import Transport

CASE = Case(
    (Truth(("undecided",), causes=("unobserved",), progress=("unknown",), says=("DeepEP",)),),
    within_s=75,
)


def main() -> None:
    job = join()
    transport = Transport(job)
    tokens = torch.zeros(10)
    for step in range(100):
        time.sleep(STEP_S)
        job.keep(dist.all_reduce(tokens, async_op=job.late))
        job.wait()
        if step == 40:
            job.mark_fault()
            transport.receive(3) if job.rank == 2 else transport.spin_for(2)
        transport.replay()


if __name__ == "__main__":
    main()

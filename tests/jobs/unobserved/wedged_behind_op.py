"""Ranks 0-2 wedge in a transport past c10d, and rank 3 waits for them in an all_reduce."""

import time

import torch
import torch.distributed as dist

from zoo.ground_truth import Case, Truth
from zoo.rank import STEP_S, join
from zoo.transport import Transport

CASE = Case(
    (Truth(("undecided",), causes=("unobserved",), progress=("unknown",), says=("DeepEP",)),),
)


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
                transport.receive(3)
            elif job.rank < 2:
                transport.spin_for(2)
        job.keep(dist.all_reduce(tokens, async_op=job.late))
        job.wait()


if __name__ == "__main__":
    main()

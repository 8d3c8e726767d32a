"""Rank 1 sleeps, and the agent is killed and restarted while the others wait for it."""

import time

import torch
import torch.distributed as dist

from zoo.ground_truth import Case, Truth
from zoo.rank import STEP_S, join
from zoo.work import kill_agent

CASE = Case(
    (Truth(("not_entered",), culprits=(1,), causes=("sleeping",)),),
    needs=("recorder",),
)


def main() -> None:
    job = join()
    gradient = torch.ones(1000)
    for step in range(100):
        time.sleep(STEP_S)
        if step == 40 and job.rank == 1:
            job.mark_fault()
            time.sleep(1)
            kill_agent()
            time.sleep(3600)
        job.keep(dist.all_reduce(gradient, async_op=job.late))
        job.wait()


if __name__ == "__main__":
    main()

"""Rank 1 swallows an exception and skips one of three equal all_reduces of a step.

From then on its ops match ops that the others issued one earlier, and all of them complete with
wrong sums. At the end the others wait for one more op.
"""

import time

import torch
import torch.distributed as dist

from zoo.rank import STEP_S, Job, fault, join

CASE = fault("mismatch", 1, says=("barrier", "all_reduce"))


def reduce_metrics(job: Job, step: int, loss: torch.Tensor, accuracy: torch.Tensor) -> None:
    try:
        job.keep(dist.all_reduce(loss, async_op=job.late))
        if step == 40 and job.rank == 1:
            job.mark_fault()
            raise ZeroDivisionError("accuracy of an empty batch")
        job.keep(dist.all_reduce(accuracy, async_op=job.late))
    except ZeroDivisionError as error:
        print("metrics:", error)


job = join()
loss, accuracy, gradient = torch.ones(100), torch.ones(100), torch.ones(100)
for step in range(60):
    time.sleep(STEP_S)
    reduce_metrics(job, step, loss, accuracy)
    job.all_reduce(gradient)
dist.barrier()

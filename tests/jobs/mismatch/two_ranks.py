"""One of two ranks calls barrier where the other reduces; no evidence shows which is right."""

import torch.distributed as dist

from zoo.rank import fault, join

CASE = fault("mismatch", causes="mismatch", parties=((0,), (1,)), says="barrier", ranks=2)

job = join()
for odd in job.steps(1):
    if odd:
        job.call(dist.barrier)
    else:
        job.all_reduce()

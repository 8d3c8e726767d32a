"""Other processes use the CPUs; the job continues slowly."""

import multiprocessing

import torch
import torch.distributed as dist

from zoo.rank import Case, join
from zoo.work import compute

CASE = Case(lasts_s=30)

job = join()
for _ in range(2):
    multiprocessing.Process(target=compute, args=(30.0,), daemon=True).start()
gradient = torch.ones(100_000)
for _ in range(100):
    compute(0.1, share=0.5)
    for _ in range(10):
        job.keep(dist.all_reduce(gradient, async_op=job.late))
    job.wait()
    gradient.fill_(1)

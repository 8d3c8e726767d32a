"""From one step on, rank 0 sends with a tag that differs from rank 1's."""

import time

import torch
import torch.distributed as dist

from zoo.rank import STEP_S, fault, join

CASE = fault(
    "deadlock",
    causes="deadlock",
    parties=((0,), (1,)),
    says=("tag 7", "tag 3"),
    ranks=2,
    modes=("sync",),
)

job = join()
mine, theirs = torch.ones(1000), torch.empty(1000)
peer = 1 - job.rank
for step in range(100):
    time.sleep(STEP_S)
    tag = 3
    if step >= 40 and job.rank == 0:
        job.mark_fault()
        tag = 7
    ops = [dist.P2POp(dist.isend, mine, peer, tag=tag), dist.P2POp(dist.irecv, theirs, peer, tag=3)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()

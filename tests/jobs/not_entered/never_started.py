"""Three of four ranks were started; they wait for the fourth in init_process_group."""

import torch
import torch.distributed as dist

from zoo.rank import fault, job_before_init, join

CASE = fault(
    "not_entered",
    3,
    "never_joined",
    progress="unknown",
    says="init_process_group",
    ranks=3,
    modes=("sync",),
    within_s=60,
    environment={"WORLD_SIZE": "4"},
)

job_before_init().mark_fault()
join()
dist.all_reduce(torch.ones(1000))

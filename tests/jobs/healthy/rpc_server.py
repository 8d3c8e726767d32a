"""Ranks train and call one that has nothing else to do than to answer; then all end."""

import time

import torch
import torch.distributed as dist
from torch.distributed import rpc

from zoo.rank import Case, join

SERVER = 2
CASE = Case(modes=("sync",), lasts_s=45)


def look_up(row: int) -> torch.Tensor:
    time.sleep(0.02)
    return torch.full((8,), row)


job = join()
options = rpc.TensorPipeRpcBackendOptions(init_method=f"file://{job.folder}/rpc")
rpc.init_rpc(f"worker{job.rank}", None, job.rank, job.world, options)
trainers = dist.new_group([rank for rank in range(job.world) if rank != SERVER])
gradient = torch.ones(1000)
for step in range(1_000_000 if job.rank != SERVER else 0):
    if step == 100:
        job.mark_fault()
    rpc.rpc_sync(f"worker{SERVER}", look_up, args=(step,))
    dist.all_reduce(gradient, group=trainers)
rpc.shutdown()

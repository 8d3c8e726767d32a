"""Rank 0 waits for the answer to a remote call, and its handler in rank 2 for a file."""

import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed import rpc

from zoo.rank import fault, join

SERVER = 2
CASE = fault(
    "not_entered",
    2,
    "file_io",
    says=("rpc_sync to worker2", "rpc_handler.py", "the handler of a remote call"),
    modes=("sync",),
)


def look_up(path: str) -> bytes:
    return Path(path).read_bytes()


job = join()
options = rpc.TensorPipeRpcBackendOptions(init_method=f"file://{job.folder}/rpc")
rpc.init_rpc(f"worker{job.rank}", None, job.rank, job.world, options)
trainers = dist.new_group([rank for rank in range(job.world) if rank != SERVER])
table, fifo = job.folder / f"table{job.rank}", job.folder / "fifo"
table.write_bytes(b"1")
if job.rank == 0:
    os.mkfifo(fifo)  # nobody writes to it
gradient = torch.ones(1000)
for step in range(100 if job.rank != SERVER else 0):
    path = table
    if step == 40 and job.rank == 0:
        job.mark_fault()
        path = fifo
    rpc.rpc_sync(f"worker{SERVER}", look_up, args=(str(path),))
    dist.all_reduce(gradient, group=trainers)
rpc.shutdown()

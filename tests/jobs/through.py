"""A healthy gloo job of three ranks, dumped right after an op and later: `through.py FOLDER`."""

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

folder = Path(sys.argv[1])
rank = int(os.environ["RANK"])
dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=3)
tensor = torch.ones(8)
for _ in range(5):
    dist.all_reduce(tensor)
dist.broadcast(tensor, 0)
dist.all_reduce(tensor, async_op=True).wait()
for moment in ("at_once", "later"):
    (folder / moment).mkdir(exist_ok=True)
    (folder / moment / f"nccl_trace_rank_{rank}").write_bytes(
        c10d._dump_fr_trace(True, True, False)
    )
    time.sleep(1)
dist.barrier()

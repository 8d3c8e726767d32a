"""A job of two ranks that hangs: rank 1 sleeps and never enters the last all_reduce.

It is run. Each rank prints its pid once all of them have trained.
"""

from __future__ import annotations

import datetime as dt
import os
import time

import torch
import torch.distributed as dist


def load_batch() -> None:
    time.sleep(3600)


dist.init_process_group("gloo", timeout=dt.timedelta(hours=1))
dist.all_reduce(torch.ones(4))
print(f"pid {os.getpid()}\n", end="", flush=True)  # one write: lines of two ranks do not mix
if dist.get_rank() == 1:
    load_batch()
dist.all_reduce(torch.ones(4))

"""A rank of the soak: trains, and a second thread issues ops without end on a group of its own.

The same program runs without frtop, beside the others: what grows there is not frtop's. Rank 0 ends
the job at the file SOAK_END, and tells the others, so that all end with the same step.
"""

from __future__ import annotations

import os
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Final

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEP_S: Final = 0.05
BURST: Final = 20
BURST_S: Final = 0.02
"""A burst of ops every so often: 1,000 a second."""
NEW_GROUP: Final = 20
"""Steps from one new group to the next: thousands an hour, more than a ring has room for."""
GROUPS: Final = 4000
"""Made at the beginning: the recorder writes its table of groups anew after some 2,700. What it
takes for that the first time stays, and must not look like growth."""


def burst(group: dist.ProcessGroup, last: threading.Event) -> None:
    """Issues ops of changing sizes; rank 0 says with each burst whether it is the last."""
    tensors = [torch.ones(1 + n) for n in range(BURST)]
    over, due = torch.zeros(1), time.monotonic()
    while not over:
        over[0] = float(last.is_set())
        works = [dist.all_reduce(one, group=group, async_op=True) for one in tensors]
        dist.broadcast(over, 0, group=group)
        for work in works:
            assert work is not None
            work.wait()
        due = max(due + BURST_S, time.monotonic() - 1)
        time.sleep(max(0.0, due - time.monotonic()))


def make_group() -> None:
    """Makes a group, uses it and destroys it."""
    group = dist.new_group()
    dist.barrier(group)
    dist.destroy_process_group(group)


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(minutes=10))
    rank, world, end = dist.get_rank(), dist.get_world_size(), Path(os.environ["SOAK_END"])
    recorded = os.environ["SOAK_WAY"] != "none"
    if recorded:
        import frtop_probe  # noqa: PLC0415 - not in the job without it
    for _ in range(GROUPS):
        make_group()
    last = threading.Event()
    beside = threading.Thread(target=burst, args=(dist.new_group(), last))
    beside.start()
    layers = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
    model = DistributedDataParallel(layers, bucket_cap_mb=0.01)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    step, over = 0, torch.zeros(1)
    while not over:
        loss = model(torch.randn(16, 64)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        splits = [1 + (step + one + rank) % 7 for one in range(world)]
        theirs = [1 + (step + rank + one) % 7 for one in range(world)]
        dist.all_to_all_single(torch.empty(sum(theirs)), torch.ones(sum(splits)), theirs, splits)
        if recorded:
            frtop_probe.report(loss=loss.item())
        if step % NEW_GROUP == 0:
            make_group()
        over[0] = float(rank == 0 and end.exists())
        dist.broadcast(over, 0)
        step += 1
        time.sleep(STEP_S)
    last.set()
    beside.join()
    print(f"steps {step}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

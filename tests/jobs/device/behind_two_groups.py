"""Rank 3 sleeps; ranks 0 and 1 stand behind their devices, and rank 2 waits for them elsewhere.

The queue of a device takes a thousand launches, then the host stops at whatever line launches the
next one. A host that stands there keeps those of its other group waiting, and is not the culprit.
"""

import time

import torch
import torch.distributed as dist

from zoo import stand_in_nccl as nccl
from zoo.rank import fault, join

# Only the recorder sees the fronts of a stand-in; those of NCCL are read from outside, too.
CASE = fault("not_entered", 3, "sleeping", needs=("recorder",))

MATRIX = torch.ones(256, 256)


def launch() -> None:
    """Stops behind the device, busy in C++, with no frame that tells so."""
    while any(one.behind for one in nccl.Device.groups):
        torch.mm(MATRIX, MATRIX)


nccl.install()
job = join()
gradient, loss = nccl.tensor(), torch.ones(1)
wide, narrow = dist.new_group([0, 1, 3]), dist.new_group([0, 1, 2])
for odd in job.steps(3, at=60, count=10_000):
    if odd:
        time.sleep(10_000)
    if job.rank != 2:
        job.all_reduce(gradient, wide)
        launch()
    if job.rank != 3:
        dist.all_reduce(loss, group=narrow)

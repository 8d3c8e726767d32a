"""Rank 1 has finished training and uploads its model to a server that never reads."""

import time

import torch
import torch.distributed as dist

from zoo.ground_truth import fault
from zoo.rank import STEP_S, join

CASE = fault("not_entered", 1, "file_io", says="upload")

job = join()
gradient = torch.ones(1_000_000)
for step in range(100):
    time.sleep(STEP_S)
    if step == 40 and job.rank == 1:
        break
    job.all_reduce(gradient)
job.mark_fault()
job.pipe("upload").write_bytes(gradient.numpy().tobytes())
dist.destroy_process_group()

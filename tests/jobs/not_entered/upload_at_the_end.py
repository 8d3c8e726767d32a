"""Rank 1 has finished training and uploads its model to a server that never reads."""

import torch
import torch.distributed as dist

from zoo.rank import fault, join

CASE = fault("not_entered", 1, "file_io", says="upload")

job = join()
gradient = torch.ones(1_000_000)
for odd in job.steps(1):
    if odd:
        break
    job.all_reduce(gradient)
job.pipe("upload").write_bytes(gradient.numpy().tobytes())
dist.destroy_process_group()

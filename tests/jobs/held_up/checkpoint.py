"""Rank 0 writes a checkpoint to a slow file system; the others wait for it in a barrier."""

import io
import shutil

import torch
import torch.distributed as dist

from zoo.rank import fault, join
from zoo.work import slow_file

CASE = fault("not_entered", 0, "file_io", progress="active", says="checkpoint.pt")

job = join()
weights = torch.ones(40_000_000)
for odd in job.steps(0):
    job.all_reduce()
    if odd:
        image = io.BytesIO()
        torch.save(weights, image)
        image.seek(0)
        path = slow_file(job.folder / "checkpoint.pt", 1_000_000)
        with path.open("wb") as file:
            shutil.copyfileobj(image, file)
    dist.barrier()

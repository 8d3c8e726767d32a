"""Rank 0 writes a checkpoint for 40 s while all others wait, and training continues."""

import io
import shutil

import torch
import torch.distributed as dist

from zoo.rank import Case, join, truth
from zoo.work import slow_file

CASE = Case(
    lasts_s=65, allowed=(truth("not_entered", 0, "file_io", progress=("active", "unknown")),)
)

job = join()
image = io.BytesIO()
torch.save(torch.ones(10_000_000), image)
path = job.folder / "checkpoint.pt"
if job.rank == 0:
    slow_file(path, 1_200_000)
for odd in job.steps(0, at=60, count=400):
    job.all_reduce()
    if odd:
        image.seek(0)
        with path.open("wb") as file:
            shutil.copyfileobj(image, file)
    dist.barrier()

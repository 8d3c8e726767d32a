"""Rank 0 writes a checkpoint for 40 s while all others wait, and training continues."""

import io
import shutil
import time

import torch
import torch.distributed as dist

from zoo.ground_truth import Case, truth
from zoo.rank import STEP_S, join
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
for step in range(400):
    time.sleep(STEP_S)
    job.all_reduce()
    if step == 60 and job.rank == 0:
        image.seek(0)
        job.mark_fault()
        with path.open("wb") as file:
            shutil.copyfileobj(image, file)
    dist.barrier()

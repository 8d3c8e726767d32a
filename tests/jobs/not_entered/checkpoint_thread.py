"""Rank 1 waits for its last checkpoint, whose thread opens a file that does not come."""

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

from zoo.ground_truth import fault
from zoo.rank import STEP_S, join

CASE = fault(
    "not_entered", 1, "file_io", says=('thread "saver_0"', "openat", "checkpoint_thread.py")
)


def save(state: torch.Tensor, path: Path) -> None:
    with path.open("wb") as file:
        torch.save(state, file)


job = join()
saver = ThreadPoolExecutor(4, thread_name_prefix="saver")
gradient = torch.ones(1000)
os.mkfifo(job.folder / f"fifo.{job.rank}")  # nobody reads it
for step in range(100):
    time.sleep(STEP_S)
    if step == 40:
        odd = job.rank == 1
        path = job.folder / (f"fifo.{job.rank}" if odd else f"checkpoint.{job.rank}")
        saved = saver.submit(save, gradient.clone(), path)
        if odd:
            job.mark_fault()
        saved.result()
    job.all_reduce(gradient)

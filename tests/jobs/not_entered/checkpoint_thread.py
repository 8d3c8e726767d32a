"""Rank 1 waits for its last checkpoint, whose thread opens a file that does not come."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

from zoo.rank import fault, join

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
for step, odd in enumerate(job.steps(1)):
    if step == 40:
        path = job.folder / (f"fifo.{job.rank}" if odd else f"checkpoint.{job.rank}")
        saved = saver.submit(save, gradient.clone(), path)
        saved.result()
    job.all_reduce(gradient)

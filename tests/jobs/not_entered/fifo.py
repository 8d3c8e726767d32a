"""Rank 2 reads a file that never ends."""

import torch

from zoo.rank import fault, join

CASE = fault("not_entered", 2, "file_io", says="shard-0412")

job = join()
gradient = torch.ones(1000)
shard = job.pipe("shard-0412")
for odd in job.steps(2):
    if odd:
        with shard.open("rb") as file:
            gradient += torch.frombuffer(file.read(4000), dtype=torch.float32)
    job.all_reduce(gradient)

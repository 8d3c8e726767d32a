"""Rank 1 has 1 % of a core, as in a container with a much too low limit."""

import os
from pathlib import Path

import torch

from zoo.rank import fault, join

CASE = fault("not_entered", 1, "computing", progress="active", needs=("cpu cgroup",))

job = join()
for odd in job.steps(1):
    if odd:
        (Path(os.environ["ZOO_CGROUP"]) / "cgroup.procs").write_text(str(os.getpid()))
        matrix = torch.rand(200, 200)
        for _ in range(10**6):
            matrix = torch.tanh(matrix @ matrix)
    job.all_reduce()

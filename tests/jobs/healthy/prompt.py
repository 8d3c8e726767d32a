"""A session in which somebody types: its only rank waits at a prompt."""

import code
import os
import pty
import time

import torch
import torch.distributed as dist

from zoo.ground_truth import Case
from zoo.rank import STEP_S, join

CASE = Case(ranks=1, modes=("sync",), lasts_s=75)

join()
gradient = torch.ones(1000)
for _ in range(40):
    time.sleep(STEP_S)
    dist.all_reduce(gradient)
_, terminal = pty.openpty()
os.dup2(terminal, 0)
code.interact(local={"gradient": gradient})

"""The agent is killed and restarted while the job runs at full speed; the job is healthy."""

import time

import torch

from zoo.rank import Case, join
from zoo.work import kill_agent

CASE = Case(needs=("recorder",))
KILL_S = 4.0

job = join()
gradient = torch.ones(100_000)
begun, killed = time.monotonic(), False
while True:
    for _ in range(100):
        job.all_reduce(gradient)
    if job.rank == 0 and not killed and time.monotonic() - begun > KILL_S:
        killed = True
        kill_agent()

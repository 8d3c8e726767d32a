"""All ranks need 10 ms of a processor in each step; rank 1's container gives it a fifth of one.

How late that makes it depends on what else runs on the host.
"""

import os
import time
from pathlib import Path

from zoo.cgroup import give_fifth
from zoo.rank import join, slow
from zoo.steps import training

CASE = slow(1, "starved", within_s=90, needs=("cpu cgroup",))

job = join()
if job.rank == 1:
    give_fifth(Path(os.environ["ZOO_CGROUP"]), os.getpid())
for _ in training():
    job.mark_fault()
    begun = time.thread_time()
    while time.thread_time() - begun < 0.01:
        pass

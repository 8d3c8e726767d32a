"""All ranks leave; a function that rank 2 registered for its exit waits for a child."""

import atexit
import subprocess

import torch.distributed as dist

from zoo.rank import fault, join

CASE = fault(
    "stuck", 2, "subprocess", says=("does not end", "at_exit.py", "(upload)"), within_s=100
)


def upload() -> None:
    subprocess.run(["sleep", "600"], check=True)


job = join()
if job.rank == 2:
    atexit.register(upload)
job.train(60)
dist.destroy_process_group()
job.mark_fault()

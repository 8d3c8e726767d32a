"""All ranks leave; a function that rank 2 registered for its exit waits for a child."""

import atexit
import subprocess
import time

import torch.distributed as dist

from zoo.ground_truth import fault
from zoo.rank import STEP_S, join

CASE = fault(
    "stuck", 2, "subprocess", says=("does not end", "at_exit.py", "(upload)"), within_s=100
)


def upload() -> None:
    subprocess.run(["sleep", "600"], check=True)


def main() -> None:
    job = join()
    if job.rank == 2:
        atexit.register(upload)
    for _ in range(60):
        time.sleep(STEP_S)
        job.all_reduce()
    dist.destroy_process_group()
    job.mark_fault()


if __name__ == "__main__":
    main()

"""All ranks leave; rank 1's reporter, a thread that is no daemon, waits for an answer."""

import socket
import threading
import time

import torch.distributed as dist

from zoo.ground_truth import fault
from zoo.rank import STEP_S, join

CASE = fault(
    "stuck",
    1,
    ("socket", "lock"),
    says=("does not end", "reporter", "thread_in_recv.py", "(report)"),
    within_s=100,
)


line, server = socket.socketpair()


def report() -> None:
    line.recv(100)


def main() -> None:
    job = join()
    if job.rank == 1:
        threading.Thread(target=report, name="reporter").start()
    for _ in range(60):
        time.sleep(STEP_S)
        job.all_reduce()
    dist.destroy_process_group()
    job.mark_fault()


if __name__ == "__main__":
    main()

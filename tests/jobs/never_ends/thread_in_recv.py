"""All ranks leave; rank 1's reporter, a thread that is no daemon, waits for an answer."""

import socket
import threading

import torch.distributed as dist

from zoo.rank import fault, join

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


job = join()
if job.rank == 1:
    threading.Thread(target=report, name="reporter").start()
job.train(60)
dist.destroy_process_group()
job.mark_fault()
